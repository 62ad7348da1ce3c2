package io.grpc.netty;

import io.netty.handler.ssl.ApplicationProtocolNegotiator;
import io.netty.handler.ssl.SslContextBuilder;
import io.netty.handler.ssl.SslProvider;

/**
 * Stands before the class of this name in grpc-netty, which asks netty for ALPN and in Debian gets
 * an error. This one asks for nothing, since the default is HTTP/2.
 */
public class GrpcSslContexts {
  private GrpcSslContexts() {}

  public static SslContextBuilder forClient() {
    return SslContextBuilder.forClient().sslProvider(SslProvider.JDK).protocols("TLSv1.3");
  }

  static void ensureAlpnAndH2Enabled(ApplicationProtocolNegotiator negotiator) {}
}
