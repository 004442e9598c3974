# Two stages: build with cgo on Debian, run on an image that has glibc and
# nothing else. The vendor's library is not in the image: it comes from the host
# (the NVIDIA container runtime mounts it) and is opened at run time.
ARG BUILD_IMAGE=docker.io/library/golang:1.26-bookworm
ARG RUN_IMAGE=gcr.io/distroless/base-debian12

FROM ${BUILD_IMAGE} AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=unknown
ENV CGO_ENABLED=1 CGO_CFLAGS="-g -O2 -Wno-deprecated-declarations"
RUN go build -trimpath -ldflags "-s -w -X main.version=${VERSION}" -o /out/warpgauge ./cmd/warpgauge

FROM ${RUN_IMAGE}
COPY --from=build /out/warpgauge /usr/bin/warpgauge
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
