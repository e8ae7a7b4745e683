//go:build unix

package upgrade

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"os"
)

// archiveName is the name of the fixtures. They are compressed twice: segments are mostly
// zeros, of which the first compression leaves a pattern.
const archiveName = "data.tar.gz.gz"

// pack writes the files of a folder to an archive.
func pack(dir, path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	outer, _ := gzip.NewWriterLevel(f, gzip.BestCompression)
	inner, _ := gzip.NewWriterLevel(outer, gzip.BestCompression)
	archive := tar.NewWriter(inner)
	return errors.Join(archive.AddFS(os.DirFS(dir)), archive.Close(), inner.Close(), outer.Close(), f.Close())
}

// expand returns what is in an archive, as a tar file.
func expand(r io.Reader) (io.Reader, error) {
	outer, err := gzip.NewReader(r)
	if err != nil {
		return nil, err
	}
	return gzip.NewReader(outer)
}
