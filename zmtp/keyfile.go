package zmtp

import "strings"

// Format of a key file: three lines, of which the last two end with a key. Any other text
// is an error, so that mistakes are noticed.
const (
	keyFileHead   = "chp CURVE key 1"
	keyFilePublic = "public "
	keyFileSecret = "secret "
)

// ParseKeyFile parses the text of a key file, as the commands chp keygen and zdev keygen
// write it: a line "chp CURVE key 1", a line "public KEY" and a line "secret KEY", each KEY
// in Z85. The error matches ErrMalformed and reveals nothing of the text. A caller that no
// longer needs the text should clear it.
func ParseKeyFile(text []byte) (KeyPair, error) {
	// Lines may end with a carriage return: an editor may have saved the file.
	lines := strings.Split(strings.TrimRight(strings.ReplaceAll(string(text), "\r\n", "\n"), "\r\n"), "\n")
	if len(lines) != 3 || lines[0] != keyFileHead {
		return KeyPair{}, malformed("key file", "it does not have the three lines of a key file")
	}
	public, foundPublic := strings.CutPrefix(lines[1], keyFilePublic)
	secret, foundSecret := strings.CutPrefix(lines[2], keyFileSecret)
	if !foundPublic || !foundSecret {
		return KeyPair{}, malformed("key file", "it does not have a public and a secret key")
	}
	var p KeyPair
	var err error
	if p.Public, err = ParsePublicKey(public); err != nil {
		return KeyPair{}, malformed("key file", "the public key is invalid")
	}
	if p.Secret, err = ParseSecretKey(secret); err != nil {
		return KeyPair{}, malformed("key file", "the secret key is invalid")
	}
	if p.Secret.Public() != p.Public {
		return KeyPair{}, malformed("key file", "the two keys do not belong together")
	}
	return p, nil
}

// IsKeyFile reports whether a text begins as a key file does. The rest may be invalid.
func IsKeyFile(text []byte) bool { return strings.HasPrefix(string(text), keyFileHead) }

// AppendKeyFile appends the text of a key file with p to dst, for ParseKeyFile and the
// commands that take key files. It has the secret key: write it only to a file that its
// owner alone can read.
func AppendKeyFile(dst []byte, p KeyPair) []byte {
	return append(dst, keyFileHead+"\n"+keyFilePublic+p.Public.String()+"\n"+keyFileSecret+p.Secret.Z85()+"\n"...)
}
