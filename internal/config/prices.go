package config

import "path/filepath"

// PricesFile names the file in which a user says what models cost, "" if there is no home
// for it. It need not be there. getenv is os.Getenv but for tests.
func PricesFile(getenv func(string) string) string {
	base := configHome(getenv)
	if base == "" {
		return ""
	}
	return filepath.Join(base, "tally", "prices.json")
}
