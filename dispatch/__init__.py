"""The lease protocol: handing jobs to runners so that none is lost and none lands twice.

`dispatch` knows nothing of problems, users or homeworks, and nothing of HTTP. What lands a
result (`process_result`) and what a runner is handed (`hand_out`) are injected.
"""
