package io.github.stickycas.example;

/** Why this program ends without having done what it was told, in words. */
final class NoDecision extends Exception {
  NoDecision(String why) {
    super(why);
  }
}
