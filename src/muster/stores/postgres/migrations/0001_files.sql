-- What is too long for one row, part by part: files that attempts have made, and git bundles on their way.
CREATE TABLE files (
    id            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    task_id       bigint NOT NULL,
    epoch         bigint NOT NULL,
    workspace_id bigint NOT NULL,
    kind          text NOT NULL,
    name          text NOT NULL,
    sha256        text NOT NULL,
    size          bigint NOT NULL,
    received      bigint NOT NULL,
    whole         smallint NOT NULL,
    created_at_ms bigint NOT NULL,
    UNIQUE (task_id, epoch, kind, name, sha256)
);
CREATE INDEX files_age ON files (created_at_ms);

CREATE TABLE file_parts (
    file_id  bigint NOT NULL,
    workspace_id bigint NOT NULL,
    "offset" bigint NOT NULL,
    data     bytea NOT NULL,
    PRIMARY KEY (file_id, "offset")
);
