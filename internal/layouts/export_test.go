package layouts

// LackExchange makes a Dir behave as on a file system without exchange, and without links if links is set.
func LackExchange(d *Dir, links bool) { d.lacks.exchange, d.lacks.links = true, links }
