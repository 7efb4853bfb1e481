package config

// Origin returns the origin of a setting: a file, a variable, "call" or "default".
func (c Config) Origin(setting string) string { return c.origins[setting].name }
