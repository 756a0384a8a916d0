"""One real chat answer through the gateway, printed with the endpoint and a key: the end of ``make up``."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from pathlib import Path

status = json.loads(
    subprocess.run(
        [sys.executable, "-m", "orchestrator.cli", "up", "tiny", "--nodes", "2", "--json"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
)
key = Path(status["key_file"]).read_text(encoding="utf-8").strip()
question = {
    "model": status["model"],
    "messages": [{"role": "user", "content": "Hello fox"}],
    "max_tokens": 16,
    "temperature": 0,
}
request = urllib.request.Request(
    f"{status['endpoint']}/chat/completions",
    data=json.dumps(question).encode(),
    headers={"Authorization": f"Bearer {key}", "Content-Type": "application/json"},
)
with urllib.request.urlopen(request, timeout=60) as response:
    answer = json.load(response)
print(f"endpoint  {status['endpoint']}")
print(f"key       {key}")
print(f"model     {status['model']} ({answer['usage']['completion_tokens']} tokens answered; the weights are random)")
print(f"answer    {answer['choices'][0]['message']['content']!r}")
