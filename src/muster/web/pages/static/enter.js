// A link in a message may be opened by whoever looks for a preview: only a browser sends the form.
document.getElementById("enter")?.requestSubmit();
