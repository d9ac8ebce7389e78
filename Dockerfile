# syntax=docker/dockerfile:1
# SPDX-License-Identifier: Apache-2.0
#
# The same images as `hack/images` builds without Docker:
#
#   for i in manager agent replay-model tools; do docker build --target $i -t agentsession.dev/$i:v0.1.0 .; done
#
# Programs are static and start from nothing; only `tools` has a shell, because a session's commands need one.

FROM --platform=$BUILDPLATFORM golang:1.26-bookworm AS source
WORKDIR /src
ENV CGO_ENABLED=0 GOOS=linux GOFLAGS=-buildvcs=false
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG TARGETARCH
ENV GOARCH=$TARGETARCH
RUN mkdir /out /accounts \
 && printf '%s\n' 'root:x:0:0:root:/root:/bin/sh' 'nonroot:x:65532:65532:nonroot:/tmp/home:/bin/sh' \
      'nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin' > /accounts/passwd \
 && printf '%s\n' 'root:x:0:' 'tty:x:5:' 'nonroot:x:65532:' 'nogroup:x:65534:' > /accounts/group

FROM source AS build-manager
RUN go build -trimpath -ldflags="-s -w" -o /out/ ./cmd/manager

FROM source AS build-agent
RUN go build -trimpath -ldflags="-s -w" -o /out/ ./cmd/agent ./cmd/toolbox

FROM source AS build-replay-model
RUN go build -trimpath -ldflags="-s -w" -o /out/ ./cmd/replay-model

FROM scratch AS manager
COPY --from=source /accounts/ /etc/
COPY --from=source /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build-manager /out/manager /usr/local/bin/
USER 65532:65532
WORKDIR /
ENTRYPOINT ["/usr/local/bin/manager"]

FROM scratch AS agent
COPY --from=source /accounts/ /etc/
COPY --from=source /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build-agent /out/agent /out/toolbox /usr/local/bin/
USER 65532:65532
WORKDIR /
ENTRYPOINT ["/usr/local/bin/agent"]

FROM scratch AS replay-model
COPY --from=source /accounts/ /etc/
COPY --from=build-replay-model /out/replay-model /usr/local/bin/
USER 65532:65532
WORKDIR /
ENTRYPOINT ["/usr/local/bin/replay-model"]

# The packages are those of hack/images/catalogue.go.
FROM debian:bookworm-slim AS tools
RUN apt-get update \
 && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
      acl attr base-files bash ca-certificates coreutils curl dash debianutils diffutils e2fsprogs findutils git grep gzip libc-bin \
      make mawk ncurses-bin patch procps python3 ripgrep sed tar util-linux xz-utils \
 && rm -rf /var/lib/apt/lists/* \
 && find / -xdev -perm /6000 -exec chmod a-s {} + \
 && printf 'nonroot:x:65532:65532:nonroot:/tmp/home:/bin/sh\n' >> /etc/passwd \
 && printf 'nonroot:x:65532:\n' >> /etc/group \
 && mkdir -p /workspace
ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8
USER 65532:65532
WORKDIR /workspace
CMD ["bash"]
