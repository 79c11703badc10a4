// A library whose code does at once what the environment's WEFT_BAD_START says: before anything of
// it is asked for.
#include <csignal>
#include <cstdlib>
#include <stdexcept>
#include <string>

namespace {

struct Start {
  Start() {
    const char* const what = std::getenv("WEFT_BAD_START");
    const std::string text = what == nullptr ? "" : what;
    if (text == "exit") std::exit(0);
    if (text == "throw") throw std::runtime_error("not today");
    if (text == "crash") std::raise(SIGSEGV);
    if (text == "loop") {
      for (volatile int i = 0; i == 0;) {
      }
    }
  }
};

const Start start;

}  // namespace
