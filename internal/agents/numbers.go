package agents

import (
	"bytes"
	"math/big"
	"strconv"

	"github.com/tallylog/tally/events"
	"github.com/tallylog/tally/internal/rawjson"
)

// maxCount is the largest number that is exact in every language.
const maxCount = 1 << 53

// Count reads a number of tokens. It returns 0 if the member is not a number, is negative, or is larger than 2^53.
func Count(m rawjson.Members, name string) int64 {
	raw, _ := m.Get(name)
	n, err := strconv.ParseInt(string(raw), 10, 64)
	if err != nil || n < 0 || n > maxCount {
		return 0
	}
	return n
}

// Number reads a non-negative number exactly. It refuses numbers with more than 32 digits.
func Number(m rawjson.Members, name string) (*big.Rat, bool) {
	raw, _ := m.Get(name)
	_, exponent, _ := bytes.Cut(bytes.ToLower(raw), []byte("e"))
	if len(raw) == 0 || len(raw) > 32 || len(exponent) > 3 || raw[0] < '0' || raw[0] > '9' {
		return nil, false
	}
	return new(big.Rat).SetString(string(raw))
}

// USD reads an amount of dollars; "" if it is missing. It also returns "" for 0, which agents write if they know no
// price.
func USD(m rawjson.Members, name string) events.Amount {
	usd, ok := Number(m, name)
	if !ok || usd.Sign() == 0 {
		return ""
	}
	if amount := events.AmountOf(usd); len(amount) <= 64 {
		return amount
	}
	return ""
}
