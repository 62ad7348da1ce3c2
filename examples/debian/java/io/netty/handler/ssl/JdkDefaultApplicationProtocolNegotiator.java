package io.netty.handler.ssl;

import io.netty.buffer.ByteBufAllocator;
import java.util.List;
import javax.net.ssl.SSLEngine;

/**
 * Stands before the class of this name in Debian's netty, from which ALPN with the JDK is left out:
 * there it names no protocol, here it is HTTP/2.
 */
final class JdkDefaultApplicationProtocolNegotiator extends JdkBaseApplicationProtocolNegotiator {
  public static final JdkDefaultApplicationProtocolNegotiator INSTANCE =
      new JdkDefaultApplicationProtocolNegotiator();

  private JdkDefaultApplicationProtocolNegotiator() {
    super(
        new AllocatorAwareSslEngineWrapperFactory() {
          @Override
          SSLEngine wrapSslEngine(
              SSLEngine engine,
              ByteBufAllocator allocator,
              JdkApplicationProtocolNegotiator negotiator,
              boolean isServer) {
            return new Java9SslEngine(engine, negotiator, isServer);
          }
        },
        FAIL_SELECTOR_FACTORY,
        FAIL_SELECTION_LISTENER_FACTORY,
        List.of("h2"));
  }
}
