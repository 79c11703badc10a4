#include "tools/reports/run_profile.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "platform/control_characters.h"

namespace weft {
namespace {

constexpr size_t kShownNodes = 20;
constexpr int kNameWidth = 48;

struct OperatorTime {
  std::string op;
  int64_t nodes = 0;
  int64_t calls = 0;
  int64_t nanoseconds = 0;
};

// Slowest first; equal ones by name.
template <typename Row, typename Name>
void SortByTime(std::vector<Row>& rows, Name name) {
  std::sort(rows.begin(), rows.end(), [&](const Row& a, const Row& b) {
    return a.nanoseconds != b.nanoseconds ? a.nanoseconds > b.nanoseconds : name(a) < name(b);
  });
}

std::vector<OperatorTime> Operators(const RunProfile& profile) {
  std::map<std::string, OperatorTime> by_name;
  for (const NodeStatistics& node : profile.nodes) {
    OperatorTime& row = by_name[node.op];
    row.op = node.op;
    row.nodes += 1;
    row.calls += node.calls;
    row.nanoseconds += node.nanoseconds;
  }
  std::vector<OperatorTime> rows;
  for (auto& [name, row] : by_name) rows.push_back(std::move(row));
  SortByTime(rows, [](const OperatorTime& row) { return row.op; });
  return rows;
}

std::vector<NodeStatistics> SlowestFirst(const RunProfile& profile) {
  std::vector<NodeStatistics> nodes = profile.nodes;
  SortByTime(nodes, [](const NodeStatistics& node) { return node.node; });
  return nodes;
}

double MillisecondsPerRun(const RunProfile& profile, int64_t nanoseconds) {
  return profile.runs == 0 ? 0 : 1e-6 * static_cast<double>(nanoseconds) / profile.runs;
}

// "   12.345  67.8"
std::string TimeColumns(const RunProfile& profile, int64_t nanoseconds) {
  const double share =
      profile.nanoseconds == 0 ? 0 : 100.0 * static_cast<double>(nanoseconds) / profile.nanoseconds;
  return absl::StrFormat("%11.3f %6.1f", MillisecondsPerRun(profile, nanoseconds), share);
}

// Of one line, whatever the name has.
std::string ShortenedAtFront(const std::string& name) {
  const std::string text = EscapeControlCharacters(name);
  if (text.size() <= kNameWidth) return text;
  return absl::StrCat("...", text.substr(text.size() - (kNameWidth - 3)));
}

}  // namespace

std::vector<NodeStatistics> Difference(const std::vector<NodeStatistics>& later,
                                       const std::vector<NodeStatistics>& earlier) {
  std::map<std::string, const NodeStatistics*> before;
  for (const NodeStatistics& node : earlier) before[node.node] = &node;
  std::vector<NodeStatistics> difference;
  for (NodeStatistics node : later) {
    const auto found = before.find(node.node);
    if (found != before.end()) {
      node.calls -= found->second->calls;
      node.nanoseconds -= found->second->nanoseconds;
    }
    if (node.calls > 0) difference.push_back(std::move(node));
  }
  return difference;
}

std::string ProfileText(const RunProfile& profile) {
  int64_t in_nodes = 0;
  for (const NodeStatistics& node : profile.nodes) in_nodes += node.nanoseconds;
  std::string text = absl::StrFormat(
      "profile: %d run%s on %d thread%s, %.3f ms a run, of which %.3f in nodes\n", profile.runs,
      profile.runs == 1 ? "" : "s", profile.threads, profile.threads == 1 ? "" : "s",
      MillisecondsPerRun(profile, profile.nanoseconds), MillisecondsPerRun(profile, in_nodes));
  absl::StrAppendFormat(&text, "  %-*s %7s %11s %6s\n", kNameWidth, "operator", "nodes", "ms a run",
                        "%");
  for (const OperatorTime& row : Operators(profile)) {
    absl::StrAppendFormat(&text, "  %-*s %7d %s\n", kNameWidth, ShortenedAtFront(row.op), row.nodes,
                          TimeColumns(profile, row.nanoseconds));
  }
  const std::vector<NodeStatistics> nodes = SlowestFirst(profile);
  const size_t shown = std::min(nodes.size(), kShownNodes);
  absl::StrAppendFormat(&text, "  %-*s %7s %11s %6s\n", kNameWidth,
                        shown < nodes.size() ? absl::StrCat("node, the slowest ", shown, " of ",
                                                            nodes.size(), " (operator)")
                                             : std::string("node (operator)"),
                        "calls", "ms a run", "%");
  for (size_t i = 0; i < shown; ++i) {
    const NodeStatistics& node = nodes[i];
    absl::StrAppendFormat(&text, "  %-*s %7d %s\n", kNameWidth,
                          ShortenedAtFront(absl::StrCat(node.node, " (", node.op, ")")), node.calls,
                          TimeColumns(profile, node.nanoseconds));
  }
  return text;
}

nlohmann::ordered_json ProfileJson(const RunProfile& profile) {
  nlohmann::ordered_json operators = nlohmann::ordered_json::array();
  for (const OperatorTime& row : Operators(profile)) {
    operators.push_back({{"operator", row.op},
                         {"nodes", row.nodes},
                         {"calls", row.calls},
                         {"milliseconds_per_run", MillisecondsPerRun(profile, row.nanoseconds)}});
  }
  nlohmann::ordered_json nodes = nlohmann::ordered_json::array();
  for (const NodeStatistics& node : SlowestFirst(profile)) {
    nodes.push_back({{"node", node.node},
                     {"operator", node.op},
                     {"calls", node.calls},
                     {"milliseconds_per_run", MillisecondsPerRun(profile, node.nanoseconds)}});
  }
  return {{"runs", profile.runs},
          {"threads", profile.threads},
          {"milliseconds_per_run", MillisecondsPerRun(profile, profile.nanoseconds)},
          {"operators", std::move(operators)},
          {"nodes", std::move(nodes)}};
}

}  // namespace weft
