# An image of chp and zdev: two static binaries and nothing else.
#
#   docker build -t chp --build-arg VERSION="$(git describe --tags --always --dirty)" .
#   docker run -p 127.0.0.1:5556-5558:5556-5558 -v chp:/var/lib/chp chp
#
# It has no shell. Without CURVE keys anyone who reaches the ports can read and write:
# publish them on 127.0.0.1 only.

FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
# The version that chp version prints: the build has no .git.
ARG VERSION=unknown
RUN CGO_ENABLED=0 go build -trimpath -pgo=packaging/chp.pgo -ldflags="-s -w -X clustermap/internal/version.stamped=$VERSION" -o /out/ ./cmd/chp ./cmd/zdev
RUN mkdir -m 0700 /out/data

FROM scratch
COPY LICENSE /
COPY --from=build /out/chp /out/zdev /
# A volume takes its owner from here.
COPY --from=build --chown=65532:65532 /out/data /var/lib/chp
USER 65532:65532
VOLUME /var/lib/chp
EXPOSE 5556 5557 5558
STOPSIGNAL SIGTERM
ENTRYPOINT ["/chp"]
CMD ["serve", "--host", "0.0.0.0", "--data", "/var/lib/chp"]
