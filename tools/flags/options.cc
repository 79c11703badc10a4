#include "tools/flags/options.h"

#include <cstdint>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "platform/log.h"
#include "platform/text/nearest_name.h"

namespace weft {

CLI::Option* AddOutputFormat(CLI::App& app, std::string& format) {
  return app.add_option("--output", format, "text, or json for programs")
      ->type_name("text|json")
      ->check([](const std::string& value) {
        return value == "text" || value == "json"
                   ? std::string()
                   : absl::StrCat("'", value, "' is not a format; expected text or json");
      });
}

CLI::Option* AddTransport(CLI::App& app, std::string& transport) {
  return app
      .add_option("--transport", transport,
                  "auto: messages between workers of one machine and user go through memory that "
                  "they share. sockets: through gRPC, as between machines (default auto)")
      ->type_name("auto|sockets")
      ->check(CLI::IsMember({"auto", kSocketTransport}).description(""));
}

CLI::Option* AddLogLevel(CLI::App& app, std::string& level) {
  return app
      .add_option("--log-level", level,
                  "log events and their duration to standard error: error, warning, info or debug "
                  "(default error)")
      ->type_name("LEVEL")
      ->group("diagnostics")
      ->check([](const std::string& value) {
        if (ParseLogLevel(value).has_value()) return std::string();
        return absl::StrCat("'", value, "' is no level; it is ",
                            absl::StrJoin(LogLevelNames(), ", "),
                            DidYouMean(value, LogLevelNames()));
      });
}

std::string AtLeastOne(const std::string& text) {
  int32_t number = 0;
  if (absl::SimpleAtoi(text, &number) && number >= 1) return "";
  return absl::StrCat("'", text, "' is not a whole number from 1 to 2147483647");
}

}  // namespace weft
