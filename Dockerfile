# syntax=docker/dockerfile:1

# Builder and runtime are the same Debian release, so that the libssl linked against is the libssl found.
FROM rust:1.95-slim-bookworm AS build
RUN apt-get update \
 && apt-get install -y --no-install-recommends g++ libssl-dev make pkg-config \
 && rm -rf /var/lib/apt/lists/*
# The image's own toolchain: rust-toolchain.toml would fetch rustfmt and clippy, which a build does not need.
ENV RUSTUP_TOOLCHAIN=1.95.0 CARGO_TARGET_DIR=/target
WORKDIR /src
# The source is mounted read-only: nothing to copy, no layer. `target` is a cache, so the binary is copied out of it.
RUN --mount=type=bind,target=/src \
    --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/target,sharing=locked \
    cargo build --release --locked --bin outboxd \
 && install -D -m 0755 /target/release/outboxd /out/outboxd

# A library that the last stage does not have must fail the build, not the first start.
RUN ldd /out/outboxd && ! ldd /out/outboxd | grep -vE 'linux-vdso|ld-linux|lib(c|m|gcc_s|ssl|crypto)\.so'

# distroless/cc has what the binary links and nothing else: libc6 and libssl3 (from distroless/base), libgcc_s. librdkafka,
# zlib and zstd are linked statically. There is no shell and no package manager; certificates are in place; the user is 65532.
FROM gcr.io/distroless/cc-debian12:nonroot
LABEL org.opencontainers.image.title="outboxd" \
      org.opencontainers.image.description="Carries events from a transactional outbox in PostgreSQL to Kafka by reading the WAL" \
      org.opencontainers.image.licenses="Apache-2.0"
# `docker build --build-arg VERSION=… --build-arg REVISION=$(git rev-parse HEAD)` says which source this is.
ARG VERSION=dev
ARG REVISION=unknown
LABEL org.opencontainers.image.version="${VERSION}" org.opencontainers.image.revision="${REVISION}"
COPY --from=build /out/outboxd /usr/local/bin/outboxd
COPY LICENSE /usr/share/doc/outboxd/LICENSE
EXPOSE 9187
# Liveness, not readiness: a broker that is down must not get the relay restarted.
HEALTHCHECK --interval=10s --timeout=3s --start-period=10s --retries=3 \
    CMD ["/usr/local/bin/outboxd", "health", "--config", "/etc/outboxd/outboxd.toml"]
# PID 1 is outboxd itself: it handles SIGTERM and starts no children.
STOPSIGNAL SIGTERM
ENTRYPOINT ["/usr/local/bin/outboxd"]
CMD ["run", "--config", "/etc/outboxd/outboxd.toml"]
