// Package rawjson reads and writes all of tally's JSON. It keeps the bytes of other producers' payloads: a field of type
// [json.RawMessage] is encoded byte for byte as it was decoded.
//
// It is stricter than encoding/json:
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
// Invalid JSON is a [*SyntaxError] with an offset into the whole input. Valid JSON that does not fit is a [*FieldError]
// with the path of the value.
package rawjson
