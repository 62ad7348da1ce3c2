package io.github.stickycas.example;

import com.google.protobuf.ByteString;
import io.github.stickycas.v1.CreateRequest;
import io.github.stickycas.v1.GetRequest;
import io.github.stickycas.v1.Parameters;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.PrintStream;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** A process, a coordinator and a watcher of StickyCAS instances. */
public final class Main {
  private static final String USAGE =
      """
      usage: stickycas-java propose SERVERS IDENTITY --instance ID|NAME --value TEXT
                                    [--unary] [--give-up-after SECONDS]
             stickycas-java create SERVERS IDENTITY --name NAME --processes N --warp-size P
                                   --read-size R --roster A,B,C [--append-rounds Q]
                                   [--patience SECONDS]
             stickycas-java watch SERVERS IDENTITY --instance ID|NAME
      SERVERS: --server HOST:PORT[,HOST:PORT...]
      IDENTITY: --credentials DIR | --principal NAME""";

  private static final PrintStream OUT =
      new PrintStream(new FileOutputStream(FileDescriptor.out), true, StandardCharsets.UTF_8);

  private Main() {}

  /** Ends with 0 if all is done, 1 if that cannot be, 2 for wrong usage or unusable credentials. */
  public static void main(String[] arguments) throws InterruptedException {
    System.exit(run(arguments));
  }

  private static int run(String[] arguments) throws InterruptedException {
    try {
      var options = new Options(arguments);
      var identity =
          options.has("credentials")
              ? Identity.in(Path.of(options.get("credentials")))
              : new Identity.Name(options.get("principal"));
      var addresses =
          Arrays.stream(options.get("server").split(","))
              .map(address -> address.replaceFirst("^https?://", "").replaceFirst("/$", ""))
              .toList();
      var giveUpAfter = seconds(options.has("give-up-after") ? options.get("give-up-after") : "30");
      try (var servers = new Servers(addresses, identity, giveUpAfter)) {
        switch (options.command) {
          case "propose" -> propose(servers, options);
          case "create" -> create(servers, options);
          default -> Watcher.watch(servers, find(servers, options.get("instance")), OUT);
        }
      }
      return 0;
    } catch (Failure | NoDecision error) {
      System.err.println("error: " + error.getMessage());
      return 1;
    } catch (IllegalArgumentException error) {
      System.err.println("error: " + error.getMessage() + "\n" + USAGE);
      return 2;
    } catch (IOException | UncheckedIOException error) {
      System.err.println("error: credentials: " + error);
      return 2;
    }
  }

  private static void propose(Servers servers, Options options)
      throws Failure, NoDecision, InterruptedException {
    ByteString value = ByteString.copyFromUtf8(options.get("value"));
    String instanceId = find(servers, options.get("instance"));
    try (Accesses accesses =
        options.has("unary")
            ? new UnaryAccesses(servers, instanceId)
            : new AttachAccesses(servers, instanceId)) {
      OUT.println("decided " + CorrectProcess.play(accesses, value).toStringUtf8());
    }
  }

  private static void create(Servers servers, Options options)
      throws Failure, InterruptedException {
    var parameters =
        Parameters.newBuilder()
            .setProcesses(Integer.parseInt(options.get("processes")))
            .setWarpSize(Integer.parseInt(options.get("warp-size")))
            .setReadSize(Integer.parseInt(options.get("read-size")));
    if (options.has("append-rounds")) {
      parameters.setAppendRounds(Integer.parseInt(options.get("append-rounds")));
    }
    if (options.has("patience")) {
      Duration patience = seconds(options.get("patience"));
      parameters.setPatience(
          com.google.protobuf.Duration.newBuilder()
              .setSeconds(patience.getSeconds())
              .setNanos(patience.getNano()));
    }
    var request =
        CreateRequest.newBuilder()
            .setName(options.get("name"))
            .setParameters(parameters)
            .addAllRoster(List.of(options.get("roster").split(",")))
            .build();
    var response = servers.call(channel -> Servers.instances(channel).create(request));
    OUT.println(response.getInstance().getInstanceId());
  }

  /** The id of an instance that is given by its id or its name. */
  private static String find(Servers servers, String instance)
      throws Failure, InterruptedException {
    if (instance.matches("[0-9a-f]{32}")) {
      return instance;
    }
    var found = servers.get(GetRequest.newBuilder().setName(instance).build());
    return found.getInstance().getInstanceId();
  }

  private static Duration seconds(String text) {
    return Duration.ofMillis(Math.round(Double.parseDouble(text) * 1000));
  }

  /** The command and its options. Whatever is wrong with them is an IllegalArgumentException. */
  private static final class Options {
    private static final List<String> OF_ALL = List.of("server", "credentials", "principal");
    private static final Map<String, List<String>> OF_COMMAND =
        Map.of(
            "propose", List.of("instance", "value", "unary", "give-up-after"),
            "create",
                List.of(
                    "name",
                    "processes",
                    "warp-size",
                    "read-size",
                    "append-rounds",
                    "roster",
                    "patience"),
            "watch", List.of("instance"));

    final String command;
    private final Map<String, String> values = new HashMap<>();

    Options(String[] arguments) {
      command = arguments.length == 0 ? "" : arguments[0];
      List<String> known = OF_COMMAND.get(command);
      if (known == null) {
        throw new IllegalArgumentException("give a command");
      }
      for (int i = 1; i < arguments.length; i++) {
        String name = arguments[i].replaceFirst("^--", "");
        boolean isOption = arguments[i].startsWith("--");
        if (!isOption || !(OF_ALL.contains(name) || known.contains(name))) {
          throw new IllegalArgumentException("there is no option " + arguments[i]);
        }
        boolean isFlag = name.equals("unary");
        if (!isFlag && i + 1 == arguments.length) {
          throw new IllegalArgumentException("--" + name + " needs a value");
        }
        values.put(name, isFlag ? "" : arguments[++i]);
      }
    }

    boolean has(String name) {
      return values.containsKey(name);
    }

    String get(String name) {
      if (!has(name)) {
        throw new IllegalArgumentException("--" + name + " is missing");
      }
      return values.get(name);
    }
  }
}
