# Two stages: build with cgo on Debian, run on an image that has glibc and
# nothing else. The vendor's library is not in the image: it comes from the host
# (the NVIDIA container runtime mounts it) and is opened at run time.
#
# For another architecture than the builder's, with a cross compiler instead of
# emulation:  docker buildx build --platform linux/amd64,linux/arm64 .
ARG BUILD_IMAGE=docker.io/library/golang:1.26-bookworm
ARG RUN_IMAGE=gcr.io/distroless/base-debian12

FROM --platform=${BUILDPLATFORM} ${BUILD_IMAGE} AS build
ARG TARGETARCH
ARG BUILDARCH
# amd64 and arm64 each know the other's compiler under this name.
RUN if [ "${TARGETARCH:-$BUILDARCH}" != "$BUILDARCH" ]; then \
        case "$TARGETARCH" in \
        amd64) p=gcc-x86-64-linux-gnu libc=libc6-dev-amd64-cross ;; \
        arm64) p=gcc-aarch64-linux-gnu libc=libc6-dev-arm64-cross ;; \
        *) echo "no cross compiler known for $TARGETARCH" >&2; exit 1 ;; \
        esac; \
        apt-get update -qq && apt-get install -y -qq --no-install-recommends "$p" "$libc"; \
    fi
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=unknown
ENV CGO_ENABLED=1 CGO_CFLAGS="-g -O2 -Wno-deprecated-declarations"
RUN export GOARCH="${TARGETARCH:-$(go env GOARCH)}"; \
    if [ "$GOARCH" != "$(go env GOHOSTARCH)" ]; then \
        case "$GOARCH" in amd64) CC=x86_64-linux-gnu-gcc ;; arm64) CC=aarch64-linux-gnu-gcc ;; esac; export CC; \
    fi; \
    go build -trimpath -ldflags "-s -w -X main.version=${VERSION}" -o /out/warpgauge ./cmd/warpgauge \
    && ln -s warpgauge /out/dcgm-exporter

FROM ${RUN_IMAGE}
# dcgm-exporter is a link: manifests that name that command start this one.
COPY --from=build /out/ /usr/bin/
COPY etc/*.csv /etc/warpgauge/
# Where the manifests of dcgm-exporter and the GPU Operator look for them.
COPY etc/*.csv /etc/dcgm-exporter/
COPY LICENSE /usr/share/doc/warpgauge/LICENSE
# What the NVIDIA container runtime should mount.
ENV NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility,compat32 \
    NVIDIA_DISABLE_REQUIRE=true
USER 65532:65532
EXPOSE 9400
ENTRYPOINT ["/usr/bin/warpgauge"]
