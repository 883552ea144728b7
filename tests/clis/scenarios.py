"""What the stub's model does, by name."""

from __future__ import annotations

from model_stub import Cut, Hang, Refuse, Say, Scenario, Shell, Unfinished

WAIT = "touch begun; while ! test -e go; do sleep 0.05; done; echo waited"
SCENARIOS: dict[str, Scenario] = {
    "plain": [Say("All is done.")],
    "tools": [Shell("echo hello > made.txt"), Shell("cat made.txt"), Say("I made it.")],
    # What aider reads as an edit: it gives its model no tools.
    "edit": [Say("made.txt\n```\nhello\n```\n")],
    "slow": [Shell("echo one >> steps.txt"), Shell(WAIT), Say("It took a while.")],
    "loop": [*(Shell("true") for _ in range(40))],
    "e401": [Refuse(401, "authentication_error")],
    "e403": [Refuse(403, "permission_error")],
    "billing": [Refuse(400, "invalid_request_error", "Your credit balance is too low to access the API.")],
    "quota": [Refuse(429, "insufficient_quota", "You exceeded your current quota")],
    "e429": [Refuse(429, "rate_limit_error")],
    "e429-after": [Refuse(429, "rate_limit_error", headers={"retry-after": "300"})],
    "e429-once": [
        Refuse(429, "rate_limit_error", headers={"retry-after": "0"}, times=1),
        Say("All is done."),
    ],
    "e529": [Refuse(529, "overloaded_error", "Overloaded")],
    "e500": [Refuse(500, "api_error", "internal")],
    "e400": [Refuse(400, "invalid_request_error", "messages: bad")],
    "e404": [Refuse(404, "not_found_error", "model: no-such-model")],
    "cut": [Cut()],
    "unfinished": [Unfinished()],
    "hang": [Hang()],
}
