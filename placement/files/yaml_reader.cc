#include "placement/files/yaml_reader.h"

#include <yaml-cpp/depthguard.h>

#include <algorithm>
#include <cmath>
#include <unordered_map>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "platform/status_macros.h"
#include "platform/text/nearest_name.h"

namespace weft {
namespace {

const char* KindOf(const YAML::Node& node) {
  switch (node.Type()) {
    case YAML::NodeType::Scalar:
      return "a single value";
    case YAML::NodeType::Sequence:
      return "a list";
    case YAML::NodeType::Map:
      return "a map";
    default:
      return "nothing";
  }
}

}  // namespace

absl::Status YamlSource::ErrorAt(const YAML::Mark& mark, const std::string& message) const {
  if (mark.is_null()) return absl::InvalidArgumentError(absl::StrCat(file_name_, ": ", message));
  return absl::InvalidArgumentError(
      absl::StrCat(file_name_, ":", mark.line + 1, ":", mark.column + 1, ": ", message));
}

absl::Status YamlSource::Error(const YAML::Node& node, const std::string& message) const {
  return ErrorAt(node.Mark(), message);
}

absl::StatusOr<YAML::Node> YamlSource::Load(const std::string& text) const {
  try {
    YAML::Node root = YAML::Load(text);
    if (!root.IsDefined() || root.IsNull()) {
      return absl::InvalidArgumentError(absl::StrCat(file_name_, ": the file is empty"));
    }
    return root;
  } catch (const YAML::DeepRecursion& error) {
    return ErrorAt(error.mark, absl::StrCat("lists and maps lie in each other more than ",
                                            error.depth(), " deep"));
  } catch (const YAML::Exception& error) {
    return ErrorAt(error.mark, absl::StrCat("not YAML: ", error.msg));
  }
}

absl::StatusOr<std::string> ReadText(const YamlSource& source, const YAML::Node& node,
                                     const std::string& what) {
  if (node.IsScalar()) return node.Scalar();
  return source.Error(node, absl::StrCat(what, " is ", KindOf(node), "; expected a single value"));
}

absl::StatusOr<int64_t> ReadInteger(const YamlSource& source, const YAML::Node& node,
                                    const std::string& what, int64_t min_value, int64_t max_value) {
  WEFT_ASSIGN_OR_RETURN(const std::string text, ReadText(source, node, what));
  int64_t value = 0;
  if (absl::SimpleAtoi(text, &value) && value >= min_value && value <= max_value) return value;
  return source.Error(node, absl::StrCat(what, " is '", text, "'; expected a whole number from ",
                                         min_value, " to ", max_value));
}

absl::StatusOr<double> ReadNumber(const YamlSource& source, const YAML::Node& node,
                                  const std::string& what) {
  WEFT_ASSIGN_OR_RETURN(const std::string text, ReadText(source, node, what));
  double value = 0;
  if (absl::SimpleAtod(text, &value) && std::isfinite(value)) return value;
  return source.Error(node, absl::StrCat(what, " is '", text, "'; expected a finite number"));
}

absl::StatusOr<bool> ReadBool(const YamlSource& source, const YAML::Node& node,
                              const std::string& what) {
  WEFT_ASSIGN_OR_RETURN(const std::string text, ReadText(source, node, what));
  if (text == "true") return true;
  if (text == "false") return false;
  return source.Error(node, absl::StrCat(what, " is '", text, "'; expected true or false"));
}

absl::StatusOr<std::vector<YamlEntry>> ReadEntries(const YamlSource& source, const YAML::Node& node,
                                                   const std::string& what) {
  if (!node.IsMap()) {
    return source.Error(node, absl::StrCat(what, " is ", KindOf(node), "; expected a map"));
  }
  std::vector<YamlEntry> entries;
  std::unordered_map<std::string, int> lines;  // in which a key comes first
  for (const auto& item : node) {
    WEFT_ASSIGN_OR_RETURN(std::string key,
                          ReadText(source, item.first, absl::StrCat("a key of ", what)));
    const auto [before, is_new] = lines.emplace(key, item.first.Mark().line + 1);
    if (!is_new) {
      return source.Error(item.first, absl::StrCat("'", key, "' comes twice in ", what,
                                                   "; the first is in line ", before->second));
    }
    entries.push_back({std::move(key), item.first, item.second});
  }
  return entries;
}

absl::StatusOr<YamlMap> YamlMap::Read(const YamlSource& source, const YAML::Node& node,
                                      const std::string& what,
                                      const std::vector<std::string>& known) {
  YamlMap map(source, node, what);
  WEFT_ASSIGN_OR_RETURN(map.entries_, ReadEntries(source, node, what));
  for (const YamlEntry& entry : map.entries_) {
    if (std::find(known.begin(), known.end(), entry.key) != known.end()) continue;
    return source.Error(entry.key_node, absl::StrCat("unknown key '", entry.key, "' in ", what,
                                                     DidYouMean(entry.key, known), " (known keys: ",
                                                     absl::StrJoin(known, ", "), ")"));
  }
  return map;
}

const YAML::Node* YamlMap::Find(const std::string& key) const {
  for (const YamlEntry& entry : entries_) {
    if (entry.key == key) return &entry.value;
  }
  return nullptr;
}

absl::StatusOr<YAML::Node> YamlMap::Require(const std::string& key) const {
  if (const YAML::Node* value = Find(key)) return *value;
  return source_->Error(node_, absl::StrCat(what_, " has no '", key, "'"));
}

absl::Status YamlMap::KeyError(const std::string& key, const std::string& message) const {
  const YAML::Node* value = Find(key);
  return source_->Error(value != nullptr ? *value : node_, absl::StrCat("'", key, "': ", message));
}

absl::Status YamlMap::Text(const std::string& key, std::string& target) const {
  const YAML::Node* value = Find(key);
  if (value == nullptr) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(target, ReadText(*source_, *value, absl::StrCat("'", key, "'")));
  if (target.empty()) return KeyError(key, "is empty");
  return absl::OkStatus();
}

absl::Status YamlMap::Int(const std::string& key, int64_t min_value, int64_t max_value,
                          int& target) const {
  const YAML::Node* value = Find(key);
  if (value == nullptr) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(
      const int64_t number,
      ReadInteger(*source_, *value, absl::StrCat("'", key, "'"), min_value, max_value));
  target = static_cast<int>(number);
  return absl::OkStatus();
}

absl::Status YamlMap::Bool(const std::string& key, bool& target) const {
  const YAML::Node* value = Find(key);
  if (value == nullptr) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(target, ReadBool(*source_, *value, absl::StrCat("'", key, "'")));
  return absl::OkStatus();
}

absl::Status YamlMap::Number(const std::string& key, double& target) const {
  const YAML::Node* value = Find(key);
  if (value == nullptr) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(target, ReadNumber(*source_, *value, absl::StrCat("'", key, "'")));
  return absl::OkStatus();
}

}  // namespace weft
