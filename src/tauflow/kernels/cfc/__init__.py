"""Closed-form cells: CfC, on a wiring, beside a memory."""
