package config

// Origin says where a setting, by its name, comes from: a file, a variable, "call" or
// "default".
func (c Config) Origin(setting string) string { return c.origins[setting].name }
