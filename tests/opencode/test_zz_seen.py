import asyncio,json
from tests.opencode import test_compaction as t
async def test_seen(confined):
    run = await t.played(confined, context_window=t.WINDOW, window_reserve=t.RESERVE, disable_compaction=False)
    print(json.dumps(run.trace.info.get("history"),indent=1)[:4000])
    print({k:v for k,v in run.trace.metrics.items() if 'compact' in k or 'sect' in k or 'fork' in k or 'err' in k})
    for n,node in enumerate(run.trace.nodes): print(n,node.parent,node.message.role,node.sampled,repr(str(node.message.content))[:90])
    print(run.record, run.trace.stop_condition)
