package layouts

// LackExchange has a Dir do without what some file systems lack.
func LackExchange(d *Dir, links bool) { d.lacks.exchange, d.lacks.links = true, links }
