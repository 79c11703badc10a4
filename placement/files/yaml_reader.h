// Reads YAML with errors that say file, line and column. Internal to placement/.
#ifndef WEFT_PLACEMENT_FILES_YAML_READER_H_
#define WEFT_PLACEMENT_FILES_YAML_READER_H_

#include <yaml-cpp/yaml.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace weft {

// Where a text came from; makes the messages.
class YamlSource {
 public:
  explicit YamlSource(std::string file_name) : file_name_(std::move(file_name)) {}
  // InvalidArgument "plan.yaml:3:7: message" for the place of `node`.
  absl::Status Error(const YAML::Node& node, const std::string& message) const;
  absl::Status ErrorAt(const YAML::Mark& mark, const std::string& message) const;
  // The root of the text; InvalidArgument for a syntax error or an empty text.
  absl::StatusOr<YAML::Node> Load(const std::string& text) const;

 private:
  std::string file_name_;
};

// The text of a scalar. `what` names it in the error: "'threads'".
absl::StatusOr<std::string> ReadText(const YamlSource& source, const YAML::Node& node,
                                     const std::string& what);
// A whole number from `min_value` to `max_value`, both included.
absl::StatusOr<int64_t> ReadInteger(const YamlSource& source, const YAML::Node& node,
                                    const std::string& what, int64_t min_value, int64_t max_value);
absl::StatusOr<double> ReadNumber(const YamlSource& source, const YAML::Node& node,
                                  const std::string& what);
absl::StatusOr<bool> ReadBool(const YamlSource& source, const YAML::Node& node,
                              const std::string& what);

// One key of a map with its value.
struct YamlEntry {
  std::string key;
  YAML::Node key_node;
  YAML::Node value;
};

// The entries in the order of the file. InvalidArgument when `node` is not a map or a key comes
// twice.
absl::StatusOr<std::vector<YamlEntry>> ReadEntries(const YamlSource& source, const YAML::Node& node,
                                                   const std::string& what);

// A map whose keys are all among `known`: others are errors with a suggestion. Borrows the source.
class YamlMap {
 public:
  static absl::StatusOr<YamlMap> Read(const YamlSource& source, const YAML::Node& node,
                                      const std::string& what,
                                      const std::vector<std::string>& known);
  // Null when absent.
  const YAML::Node* Find(const std::string& key) const;
  // InvalidArgument naming the key when absent.
  absl::StatusOr<YAML::Node> Require(const std::string& key) const;

  // Fill `target` when the key is there.
  absl::Status Text(const std::string& key, std::string& target) const;
  absl::Status Int(const std::string& key, int64_t min_value, int64_t max_value, int& target) const;
  absl::Status Bool(const std::string& key, bool& target) const;
  absl::Status Number(const std::string& key, double& target) const;
  // `parse` reads the text: ParseBytes and the like.
  template <typename T, typename Parse>
  absl::Status Quantity(const std::string& key, Parse parse, T& target) const {
    std::string text;
    if (absl::Status status = Text(key, text); !status.ok() || text.empty()) return status;
    auto value = parse(text);
    if (!value.ok()) return KeyError(key, std::string(value.status().message()));
    target = *value;
    return absl::OkStatus();
  }
  // InvalidArgument at the place of `key`: "'key': message".
  absl::Status KeyError(const std::string& key, const std::string& message) const;
  const YAML::Node& node() const { return node_; }

 private:
  YamlMap(const YamlSource& source, YAML::Node node, std::string what)
      : source_(&source), node_(std::move(node)), what_(std::move(what)) {}
  const YamlSource* source_;
  YAML::Node node_;
  std::string what_;
  std::vector<YamlEntry> entries_;
};

}  // namespace weft

#endif  // WEFT_PLACEMENT_FILES_YAML_READER_H_
