#include "tools/flags/job_file.h"

#include <cstdint>
#include <istream>
#include <iterator>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "platform/file_system.h"
#include "platform/text/nearest_name.h"
#include "tools/flags/renamed_flags.h"
#include "yaml-cpp/depthguard.h"
#include "yaml-cpp/yaml.h"

namespace weft {
namespace {

constexpr char kJobFileOptions[] = "job file";
constexpr char kConfigFlag[] = "--config";

// The key of an option in a job file; empty for one that cannot stand there.
std::string KeyOf(const CLI::Option& option) {
  if (!option.get_configurable()) return "";
  if (option.get_positional()) return absl::AsciiStrToLower(option.get_name(true));
  return option.get_lnames().empty() ? "" : option.get_lnames().front();
}

// A job file is read whole: a device, or the other end of a pipe, might never end.
constexpr int64_t kLongestJobFile = int64_t{1} << 20;

// What is wrong with the file, or "". A missing one is the parser's to tell.
std::string FileProblem(const std::string& path) {
  const absl::Status status = RealFileSystem().ReadFileUpTo(path, kLongestJobFile).status();
  return status.ok() || absl::IsNotFound(status) ? "" : std::string(status.message());
}

class YamlConfig final : public CLI::Config {
 public:
  explicit YamlConfig(const CLI::App& app) : app_(app) {}

  std::vector<CLI::ConfigItem> from_config(std::istream& input) const override {
    const CLI::Option* const file = app_.get_option_no_throw(kConfigFlag);
    return Items({std::istreambuf_iterator<char>(input), {}}, file->results().front());
  }
  std::string to_config(const CLI::App* app, bool, bool, std::string) const override {
    return JobFileText(*app);
  }

 private:
  [[noreturn]] static void Fail(const std::string& file, const YAML::Mark& mark,
                                const std::string& message) {
    throw CLI::ConfigError(absl::StrCat(file, " line ", mark.line + 1, ": ", message));
  }

  // By key, or null.
  const CLI::Option* Find(const std::string& key) const {
    const std::string dashed = absl::StrReplaceAll(key, {{"_", "-"}});
    for (const CLI::Option* option : app_.get_options()) {
      const std::string known = KeyOf(*option);
      if (known.empty()) continue;
      if (known == key || known == dashed || option->check_lname(key)) return option;
    }
    return nullptr;
  }

  std::vector<std::string> Keys() const {
    std::vector<std::string> keys;
    for (const CLI::Option* option : app_.get_options()) {
      if (std::string key = KeyOf(*option); !key.empty()) keys.push_back(std::move(key));
    }
    return keys;
  }

  // What to say of a key that no option has.
  std::string Unknown(const std::string& key) const {
    const std::string flag = absl::StrCat("--", absl::StrReplaceAll(key, {{"_", "-"}}));
    if (const std::string now = RenamedTo(flag); !now.empty()) {
      return absl::StrCat("key '", key, "' is now called ", now.substr(2));
    }
    return absl::StrCat("unknown key '", key, "'", DidYouMean(key, Keys()));
  }

  // What the option is given: a scalar, a list of scalars, or names and scalars ("NAME=VALUE").
  static std::vector<std::string> Values(const YAML::Node& node, const std::string& file) {
    std::vector<std::string> values;
    const auto scalar = [&file](const YAML::Node& value) {
      if (!value.IsScalar()) Fail(file, value.Mark(), "expected a text or a number here");
      return value.Scalar();
    };
    if (node.IsSequence()) {
      for (const YAML::Node& value : node) values.push_back(scalar(value));
    } else if (node.IsMap()) {
      for (const auto& entry : node) {
        values.push_back(absl::StrCat(scalar(entry.first), "=", scalar(entry.second)));
      }
    } else {
      values.push_back(scalar(node));
    }
    return values;
  }

  std::vector<CLI::ConfigItem> Items(const std::string& text, const std::string& file) const {
    YAML::Node root;
    try {
      root = YAML::Load(text);
    } catch (const YAML::DeepRecursion& error) {
      Fail(file, error.mark,
           absl::StrCat("lists and maps lie in each other more than ", error.depth(), " deep"));
    } catch (const YAML::Exception& error) {
      Fail(file, error.mark, error.msg);
    }
    if (root.IsNull()) return {};
    if (!root.IsMap()) Fail(file, root.Mark(), "expected options, as 'optimizer: adam'");
    std::vector<CLI::ConfigItem> items;
    for (const auto& entry : root) {
      if (!entry.first.IsScalar()) Fail(file, entry.first.Mark(), "a key is the name of an option");
      const std::string key = entry.first.Scalar();
      const CLI::Option* const option = Find(key);
      if (option == nullptr) Fail(file, entry.first.Mark(), Unknown(key));
      CLI::ConfigItem item;
      item.name = option->get_positional() ? option->get_name(true) : option->get_lnames().front();
      item.inputs = Values(entry.second, file);
      items.push_back(std::move(item));
    }
    return items;
  }

  const CLI::App& app_;
};

}  // namespace

void AddJobFile(CLI::App& app, bool& print) {
  app.config_formatter(std::make_shared<YamlConfig>(app));
  app.set_config(kConfigFlag, "", "a YAML file with options by their long names; flags override it")
      ->type_name("FILE.yaml")
      ->check(FileProblem)
      ->group(kJobFileOptions);
  app.add_flag("--print-config", print,
               "print the options of flags and --config as such a file, and stop")
      ->configurable(false)
      ->group(kJobFileOptions);
}

std::string JobFileText(const CLI::App& app) {
  YAML::Emitter out;
  out << YAML::BeginMap;
  for (const CLI::Option* option : app.get_options()) {
    const std::string key = KeyOf(*option);
    if (key.empty() || option->count() == 0) continue;
    const std::vector<std::string>& values = option->results();
    out << YAML::Key << key << YAML::Value;
    if (values.size() == 1) {
      out << values.front();
    } else {
      out << YAML::Flow << values;
    }
  }
  out << YAML::EndMap;
  return absl::StrCat(out.c_str(), "\n");
}

}  // namespace weft
