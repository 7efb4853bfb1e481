// Package rawjson is tally's one reader and writer of JSON. It is for payloads
// whose bytes belong to somebody else: what a field of type [json.RawMessage] was
// decoded from is encoded again byte for byte.
//
// It differs from encoding/json where that package is too kind for a log:
//
//   - names match exactly, upper and lower case included;
//   - a name that occurs twice in an object that is decoded is refused (inside
//     a raw value it is kept like everything else);
//   - raw values are written as they are, neither compacted nor escaped again;
//   - a string that is not UTF-8 is refused, not replaced;
//   - input must be valid UTF-8 without a byte order mark, nested no deeper
//     than [MaxDepth];
//   - null fits pointers and raw values only;
//   - members that no field takes can be kept in a [Members] field and are
//     written back.
//
// What is not JSON is a [*SyntaxError] with an offset into the whole input;
// JSON that does not fit is a [*FieldError] with the path of the value. If
// both are true of an input, it is a SyntaxError.
package rawjson
