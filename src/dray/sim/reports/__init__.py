"""The results of `dray simulate`, as documents, as text and as one HTML page with plots."""
