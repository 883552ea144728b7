// A link in a message may be opened by whoever looks for a preview: only a browser sends the form.
const form = document.getElementById("enter");
form?.requestSubmit();

// Who comes back to this page may have been let in with another one.
const to = new URL(document.querySelector("main").dataset.back || "/", location.href);

const written = document.getElementById("written"); // nobody has it but this page

async function look() {
  if (form || written || document.hidden || to.origin !== location.origin) return;
  const answer = await fetch(to, { headers: { accept: "text/html" }, credentials: "same-origin" });
  if (answer.ok) location.replace(to);
}

document.addEventListener("visibilitychange", look);
addEventListener("focus", look);
