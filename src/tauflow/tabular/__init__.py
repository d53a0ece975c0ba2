"""Tables: read by pandas, made sequences, scaled, split and padded."""
