-- S2: whoever proves an epoch names the incarnation of the store that granted it.
INSERT INTO meta (name, value) VALUES ('incarnation', lower(hex(randomblob(8))));
