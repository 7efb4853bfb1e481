package events

import "strings"

// decoder collects the attributes of one message. The bits of seen are the core attributes that it had.
type decoder struct {
	event     Event
	escapedID string // of event.Subject
	seen      uint
	err       error
}

const (
	seenSpecVersion = 1 << iota
	seenID
	seenSource
	seenType
	seenSubject
	seenTime
	seenContentType
	seenDataSchema
)

// headers adds the attribute of a header, whose name is in lower case.
func (d *decoder) headers(name string, values []string) error {
	if len(values) != 1 {
		if err := validateAttributeName(name); err != nil {
			return err
		}
		return invalid(name, "the header has %d values", len(values))
	}
	return d.header(name, values[0])
}

// header adds the attribute of one line of a header.
func (d *decoder) header(name, value string) error {
	// This check comes first: the field of every other error is then a valid attribute name.
	if err := validateAttributeName(name); err != nil {
		return err
	}
	value, err := percentDecode(name, value)
	if err != nil {
		return err
	}
	bit, err := d.core(name, value)
	if err != nil {
		return err
	}
	if bit != 0 {
		if d.seen&bit != 0 {
			return invalid(name, "the header occurs twice")
		}
		d.seen |= bit
		return nil
	}
	return d.extension(name, value)
}

// extension adds an attribute that CloudEvents itself does not define.
func (d *decoder) extension(name, value string) error {
	if _, twice := d.event.Extensions[name]; twice {
		return invalid(name, "the header occurs twice")
	}
	if d.event.Extensions == nil {
		d.event.Extensions = make(map[string]string)
	}
	d.event.Extensions[name] = value
	return nil
}

// validateAttributeName returns an *InvalidError unless a header may have the name.
func validateAttributeName(name string) error {
	if isCoreAttribute(name) && name != "data" {
		return nil
	}
	return validateExtensionName(name)
}

// core sets one of the attributes that CloudEvents itself defines and returns its bit, or 0 for another attribute.
func (d *decoder) core(name, value string) (uint, error) {
	switch name {
	case "specversion":
		if value != specVersion {
			return 0, invalid("specversion", "%q: want %s", value, specVersion)
		}
		return seenSpecVersion, nil
	case "id":
		d.event.ID = value
		return seenID, nil
	case "source":
		d.event.Source = value
		return seenSource, nil
	case "type":
		d.event.Type = value
		return seenType, nil
	case "subject":
		return seenSubject, d.sameSubject(value)
	case "time":
		var err error
		d.event.Time, err = parseTime(value)
		return seenTime, err
	case "datacontenttype": // the binding has its own header for it
		if d.event.ContentType != "" && d.event.ContentType != value {
			return 0, invalid("datacontenttype", "%q contradicts Content-Type %q", value, d.event.ContentType)
		}
		d.event.ContentType = value
		return seenContentType, nil
	case "dataschema":
		d.event.DataSchema = value
		return seenDataSchema, nil
	}
	return 0, nil
}

// sameSubject refuses a ce-subject that names another subject than the message's.
func (d *decoder) sameSubject(text string) error {
	sub := d.event.Subject
	if name, ok := strings.CutPrefix(text, sessionPrefix); ok && sub.IsSession() && name == d.escapedID {
		return nil
	}
	named, err := ParseSubject(sub.Namespace, text)
	if err != nil {
		return err
	}
	if named != sub {
		return invalid("subject", "%s contradicts the message's subject %s", text, sub.NATS())
	}
	return nil
}
