"""The offline tuner: plan, compile, dedupe, qualify, measure, select."""
