# One image with the three programs, static, in a file system that holds nothing else.
#
#   docker build -t stickycas .                                                        for this machine
#   docker build -t stickycas --build-arg TARGETARCH=arm64 --platform linux/arm64 .    for arm64, compiled here
#
# In three steps, so that a change of a source file compiles only what depends on it:
#   manifests  the workspace without its sources
#   build      all dependencies, which the manifests alone decide; then the programs
#   the last   the programs

# Any image will do that has this Rust, a C compiler and Debian's packages.
ARG RUST_IMAGE=rust:1.95-bookworm
# The processor of the machine that builds. BuildKit knows it; the older builder takes it for amd64.
ARG BUILDPLATFORM

FROM --platform=${BUILDPLATFORM:-linux/amd64} ${RUST_IMAGE} AS manifests
WORKDIR /src
COPY . .
RUN deploy/compose/manifests-only

FROM --platform=${BUILDPLATFORM:-linux/amd64} ${RUST_IMAGE} AS build
# The processor to build for: amd64 or arm64. BuildKit sets it from --platform.
ARG TARGETARCH
# off: a change of a source file is built in half the time, and the image is a fifth larger.
ARG LTO=fat
ENV CARGO_TERM_PROGRESS_WHEN=never CARGO_PROFILE_IMAGE_LTO=${LTO}
WORKDIR /src
COPY deploy/compose/cargo-for deploy/compose/
RUN deploy/compose/cargo-for "${TARGETARCH}" prepare
COPY --from=manifests /src .
# What was built of our own packages was empty, and must not be taken for the real thing.
RUN deploy/compose/cargo-for "${TARGETARCH}" build \
    && rm -rf model proto server client loadgen target/image/.fingerprint/stickycas-* \
        target/*/image/.fingerprint/stickycas-*
COPY model model
COPY proto proto
COPY server server
COPY client client
COPY loadgen loadgen
# The presets of `play` are files of it.
COPY examples/scenarios examples/scenarios
COPY deploy/compose/image-layout deploy/compose/
# Stands in run folders beside the version.
ARG COMMIT
RUN STICKYCAS_COMMIT="${COMMIT}" deploy/compose/cargo-for "${TARGETARCH}" build \
    && deploy/compose/image-layout target/programs /image

FROM scratch
ARG COMMIT
ARG VERSION=0.1.0
LABEL org.opencontainers.image.title="StickyCAS" \
      org.opencontainers.image.description="Byzantine-tolerant consensus on a write-once list: server, client, load generator" \
      org.opencontainers.image.licenses="MIT OR Apache-2.0" \
      org.opencontainers.image.source="https://example.org/stickycas" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${COMMIT}"
COPY --from=build /image /
COPY examples/scenarios /scenarios
COPY examples/profiles /profiles
COPY examples/perturbations /perturbations
ENV PATH=/usr/local/bin
# Nobody in particular; by number, because there is no list of users.
USER 65532:65532
