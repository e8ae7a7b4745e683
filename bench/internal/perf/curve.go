package perf

import (
	"clustermap/sockets"
	"clustermap/zmtp"
)

// The keys, in Z85, that libzmq's tools use too: with others the two could not
// talk. They protect nothing.
const (
	serverPublic = "DX4nh=yUn{-9ugra0X3Src4SU-4xTgqxcYY.+<SH"
	serverSecret = "{X}#>t#jRGaQ}gMhv=30r(Mw+87YGs+5%kh=i@f8"
	clientSecret = "9R9bV}[6z6DC-%$!jTVTKvWc=LEL{4i4gzUe$@Zx"
)

func serverOptions(a arguments) (o sockets.Options, err error) {
	if a.curve {
		o.Security.CurveServer = true
		o.Security.CurveSecretKey, err = zmtp.ParseSecretKey(serverSecret)
	}
	return o, err
}

func clientOptions(a arguments) (o sockets.Options, err error) {
	if a.curve {
		if o.Security.CurveServerKey, err = zmtp.ParsePublicKey(serverPublic); err == nil {
			o.Security.CurveSecretKey, err = zmtp.ParseSecretKey(clientSecret)
		}
	}
	return o, err
}
