import json
import subprocess
import sys

CASES = {"Hello World": "hello-world", "  What's new?  ": "what-s-new", "a -- b": "a-b", "C3PO & R2D2!": "c3po-r2d2"}
PROGRAM = "import sys; sys.path.insert(0, '.'); import slug; print(slug.slugify(sys.argv[1]))"


def passes(title: str, slug: str) -> bool:
    done = subprocess.run(
        [sys.executable, "-I", "-c", PROGRAM, title], cwd=sys.argv[1], capture_output=True, text=True, timeout=20
    )
    return done.stdout.strip() == slug


passed = sum(passes(title, slug) for title, slug in CASES.items())
print(json.dumps({"reward": float(passed == len(CASES)), "share": passed / len(CASES)}))
