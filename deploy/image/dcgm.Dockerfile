# The image with NVIDIA's DCGM in it, for DCGM_FI_PROF_… of GPUs before Hopper without a host engine on the node, and for nodes whose
# own libdcgm the container does not see. NVIDIA's packages come from NVIDIA's repository when you build it, under NVIDIA's
# licences (/usr/share/doc in the image), which is why no such image is published here:
#
#   docker build -t warpgauge:0.1.0-dcgm --build-arg WARPGAUGE=warpgauge:0.1.0 - <dcgm.Dockerfile
#
# Profiling on those GPUs wants CAP_SYS_ADMIN as well (deploy/helm/values/profiling.yaml). -core has libdcgm.so.4 and its open modules,
# -proprietary the profiling module; DCGM may be a version, such as "=1:4.6.1-1". The base is that of dcgm-exporter's image, whose
# C library is older than warpgauge's base, so what was made for it runs there.
ARG WARPGAUGE=warpgauge:0.1.0
ARG PACKAGES=docker.io/library/ubuntu:22.04

FROM ${PACKAGES} AS dcgm
ARG TARGETARCH
ARG DCGM=
ARG REPOSITORY=https://developer.download.nvidia.com/compute/cuda/repos/ubuntu2204
RUN set -eu; export DEBIAN_FRONTEND=noninteractive; \
    case "$TARGETARCH" in amd64) cpu=x86_64 ;; arm64) cpu=sbsa ;; *) echo "NVIDIA has no DCGM for $TARGETARCH" >&2; exit 1 ;; esac; \
    apt-get update -qq; apt-get install -y -qq --no-install-recommends ca-certificates curl; \
    curl -fsSLo /tmp/keyring.deb "$REPOSITORY/$cpu/cuda-keyring_1.1-1_all.deb"; dpkg -i /tmp/keyring.deb; \
    apt-get update -qq; \
    apt-get install -y -qq --no-install-recommends "datacenter-gpu-manager-4-core$DCGM" "datacenter-gpu-manager-4-proprietary$DCGM"; \
    library=$(dirname "$(dpkg -L datacenter-gpu-manager-4-core | grep -m1 '/libdcgm\.so\.4$')"); \
    mkdir -p "/out$library" /out/usr/share/doc; \
    cp -a "$library"/libdcgm* "$library"/libnvperf_dcgm* "$library"/libstdc++.so.6* "$library"/libgcc_s.so.1 "/out$library/"; \
    cp -a /usr/share/doc/datacenter-gpu-manager-4-* /out/usr/share/doc/

FROM ${WARPGAUGE}
COPY --from=dcgm /out/ /
