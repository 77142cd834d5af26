"""`nsdyn bench`, the judge of speed: what it measures (`start`, `runs`, `batches`, `precision`, `peers`,
`chain_cost`), the list of all that (`suite`) and the page about it (`page`)."""
