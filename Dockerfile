# Two stages: build with cgo on Debian, run on an image that has glibc and nothing
# else. No vendor's library is in the image: NVIDIA's container runtime mounts that of
# the host, AMD's values come from /sys, and what is there is opened at run time.
#
#   docker buildx build --platform linux/amd64,linux/arm64 .
#
# builds both on either, with a cross compiler instead of emulation. buildah 1.28 and
# podman of that age must be told the builder's platform:
#
#   buildah bud --platform linux/arm64 --build-arg BUILDPLATFORM=linux/amd64 .
#
# A registry may have another image under the same name tomorrow. For a build that can be
# repeated name both by digest, which docker buildx imagetools inspect NAME prints:
#
#   --build-arg BUILD_IMAGE=NAME@sha256:… --build-arg RUN_IMAGE=NAME@sha256:…
ARG BUILD_IMAGE=docker.io/library/golang:1.26.8-bookworm
# This one has no versions. For DCGM inside the container take an image that has it,
# NVIDIA's for DCGM; for ROCm SMI, whose library is C++, one with libstdc++ (distroless/cc).
ARG RUN_IMAGE=gcr.io/distroless/base-nossl-debian12

FROM --platform=${BUILDPLATFORM} ${BUILD_IMAGE} AS build
ARG TARGETARCH
# amd64 and arm64 each know the other's compiler under the same name.
RUN set -eu; host=$(go env GOHOSTARCH); target=${TARGETARCH:-$host}; \
    case "$target" in \
    "$host") cc=gcc packages= ;; \
    amd64) cc=x86_64-linux-gnu-gcc packages="gcc-x86-64-linux-gnu libc6-dev-amd64-cross" ;; \
    arm64) cc=aarch64-linux-gnu-gcc packages="gcc-aarch64-linux-gnu libc6-dev-arm64-cross" ;; \
    *) echo "no cross compiler is known for $target" >&2; exit 1 ;; \
    esac; \
    if ! command -v "$cc" >/dev/null; then \
        apt-get update -qq; apt-get install -y -qq --no-install-recommends $packages; \
    fi; \
    mkdir /out; printf 'export GOARCH=%s CC=%s\n' "$target" "$cc" >/out/env
WORKDIR /src
COPY go.mod go.sum ./
COPY test/tools/supply/go.mod test/tools/supply/go.sum test/tools/supply/
RUN go mod download && go mod download -C test/tools/supply
COPY . .
ARG VERSION=unknown
ARG SOURCE_DATE_EPOCH
RUN . /out/env && mkdir /out/bin /out/doc \
    && deploy/build /out/bin/warpgauge "${VERSION}" \
    && deploy/build /out/bin/warpctl "${VERSION}" ./cmd/warpctl \
    && deploy/build /out/bin/warpgauge-fleet "${VERSION}" ./cmd/warpgauge-fleet \
    && ln -s warpgauge /out/bin/dcgm-exporter
# The licences of what is linked in, and a bill of materials (SBOM) as CycloneDX.
RUN cp LICENSE /out/doc/ && CGO_ENABLED=0 go build -C test/tools/supply -o /tmp/supply . \
    && /tmp/supply -version "${VERSION}" -licenses /out/doc/THIRD_PARTY_LICENSES \
        -sbom /out/doc/warpgauge.cdx.json /out/bin/warpgauge /out/bin/warpctl /out/bin/warpgauge-fleet

# Said although it is the default: in buildah 1.28 the stage above would decide.
FROM --platform=${TARGETPLATFORM} ${RUN_IMAGE}
ARG VERSION=unknown
ARG RUN_IMAGE
LABEL org.opencontainers.image.title="warpgauge" \
      org.opencontainers.image.description="GPU metrics for Prometheus" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.base.name="${RUN_IMAGE}" \
      org.opencontainers.image.version="${VERSION}"
# dcgm-exporter is a link: manifests that name that command start this one. warpgauge-fleet is
# the server of field lists, warpctl asks exporters: programs of their own.
COPY --from=build /out/bin/ /usr/bin/
COPY etc/*.csv /etc/warpgauge/
# Where the manifests of dcgm-exporter and the GPU Operator look for them.
COPY etc/*.csv /etc/dcgm-exporter/
COPY --from=build /out/doc/ /usr/share/doc/warpgauge/
# What NVIDIA's container runtime mounts: "utility" is NVML, "compute" the profiling
# counters. A driver of any version will do.
ENV NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility \
    NVIDIA_DISABLE_REQUIRE=true
# Runs as any user. The default is root because the kubelet's pod-resources socket is
# root's, and the GPU Operator's DaemonSet names no user. It needs no capability: start it
# with --cap-drop ALL --security-opt no-new-privileges, as the chart does.
USER 0:0
EXPOSE 9400
ENTRYPOINT ["/usr/bin/warpgauge"]
