package io.github.stickycas.example;

import io.grpc.ChannelCredentials;
import io.grpc.InsecureChannelCredentials;
import io.grpc.Metadata;
import io.grpc.TlsChannelCredentials;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;

/** How this program shows who it is. */
sealed interface Identity {
  /** What each connection shows. */
  ChannelCredentials credentials() throws IOException;

  /** What each call or stream shows. */
  Metadata metadata() throws IOException;

  /** The identity in a folder of credentials. */
  static Identity in(Path folder) {
    return Files.exists(folder.resolve("token")) ? new Token(folder) : new Certificate(folder);
  }

  /** A name that a server without credentials believes. */
  record Name(String principal) implements Identity {
    @Override
    public ChannelCredentials credentials() {
      return InsecureChannelCredentials.create();
    }

    @Override
    public Metadata metadata() {
      return header("stickycas-principal", principal);
    }
  }

  /** A client's certificate. */
  record Certificate(Path folder) implements Identity {
    @Override
    public ChannelCredentials credentials() throws IOException {
      return TlsChannelCredentials.newBuilder()
          .trustManager(folder.resolve("ca.crt").toFile())
          .keyManager(folder.resolve("tls.crt").toFile(), folder.resolve("tls.key").toFile())
          .build();
    }

    @Override
    public Metadata metadata() {
      return new Metadata();
    }
  }

  /** A token, which is read for each call since it is replaced before it expires. */
  record Token(Path folder) implements Identity {
    @Override
    public ChannelCredentials credentials() throws IOException {
      return TlsChannelCredentials.newBuilder()
          .trustManager(folder.resolve("ca.crt").toFile())
          .build();
    }

    @Override
    public Metadata metadata() throws IOException {
      return header("authorization", "Bearer " + Files.readString(folder.resolve("token")).strip());
    }
  }

  private static Metadata header(String name, String value) {
    Metadata metadata = new Metadata();
    metadata.put(Metadata.Key.of(name, Metadata.ASCII_STRING_MARSHALLER), value);
    return metadata;
  }
}
