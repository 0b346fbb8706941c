"""Values as text: times and spans, table cells, documents, small charts."""
