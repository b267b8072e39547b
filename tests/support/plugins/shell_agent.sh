# Asks the model once and writes its answer to answer.txt, with a report beside it.
set -e
python3 - <<'PYTHON' >answer.txt
import json, os, urllib.request

request = urllib.request.Request(
    os.environ["ENDPOINT"] + "/chat/completions",
    os.environ["BODY"].encode(),
    {"Content-Type": "application/json", "Authorization": "Bearer " + os.environ["SECRET"]},
)
with urllib.request.urlopen(request) as response:
    print(json.load(response)["choices"][0]["message"]["content"])
PYTHON
printf 'by %s in %s\n' "$(id -un)" "$(pwd)" >report.txt
