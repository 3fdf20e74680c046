"""Random bytes for every reader of foreign bytes: an answer or a declared refusal, never anything else.

Everyday runs are short; `make torture` runs many more examples (`DRAY_FUZZ_EXAMPLES`). Readers of API objects, CEL and quantities have
theirs in `tests/api/test_robustness.py`, `tests/cel/test_fuzz.py` and `tests/api/test_quantity.py`.
"""
