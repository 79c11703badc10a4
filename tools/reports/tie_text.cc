#include "tools/reports/tie_text.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tools/console/console.h"

namespace weft {
namespace {

constexpr size_t kNamedTies = 3;

bool TrainsIn(const Graph& graph, const std::string& name) {
  const Variable* const variable = graph.FindVariable(name);
  return variable != nullptr && variable->trainable;
}

std::string TieText(const KeptTie& tie) {
  return absl::StrCat(tie.tensor, " shared with ", absl::StrJoin(tie.readers, " and "));
}

// "head reads wte transposed".
std::string TiedText(const CopiedTensor& tie) {
  return absl::StrCat(tie.copy, " reads ", tie.tensor, tie.transposed ? " transposed" : "");
}

std::string Counted(size_t count, const char* what) {
  return absl::StrCat(count, " ", what, count == 1 ? "" : "s");
}

// "kept 4 ties: a shared with b, c shared with d, e shared with f; 1 more".
std::string KeptText(const std::vector<KeptTie>& kept) {
  std::vector<std::string> texts;
  for (const KeptTie& tie : kept) {
    if (texts.size() < kNamedTies) texts.push_back(TieText(tie));
  }
  const size_t more = kept.size() - texts.size();
  return absl::StrCat("kept ", Counted(kept.size(), "tie"), ": ", absl::StrJoin(texts, ", "),
                      more > 0 ? absl::StrCat("; ", more, " more") : "");
}

// "untied 2 tensors by --untie and 3 that the exporter had merged (running statistics)".
std::string UntiedText(const std::vector<UntiedTensor>& untied) {
  size_t asked = 0;
  size_t statistics = 0;  // of those that nobody asked for
  size_t told = 0;
  for (const UntiedTensor& one : untied) {
    asked += one.is_asked;
    statistics += !one.is_asked && one.is_statistic;
    told += one.is_told;
  }
  const size_t merged = untied.size() - asked;
  const std::string by_user =
      asked > 0 ? absl::StrCat("untied ", Counted(asked, "tensor"), " by --untie") : "";
  if (merged == 0) return by_user;
  std::vector<std::string> why;
  if (merged > statistics + told) why.push_back("all elements equal");
  if (told > 0) why.push_back("parameters of other names");
  if (statistics > 0) why.push_back("running statistics");
  const std::string number = asked > 0 ? absl::StrCat(" and ", merged)
                                       : absl::StrCat("untied ", Counted(merged, "tensor"));
  return absl::StrCat(by_user, number, " that the exporter had merged (",
                      absl::StrJoin(why, ", or "), ")");
}

}  // namespace

TieReport TiesThatTrain(const TieReport& report, const Graph& graph) {
  TieReport trains = report;
  const auto remove = [](auto& entries, auto is_wrong) {
    entries.erase(std::remove_if(entries.begin(), entries.end(), is_wrong), entries.end());
  };
  remove(trains.kept, [&](const KeptTie& tie) { return !TrainsIn(graph, tie.tensor); });
  remove(trains.restored, [&](const std::string& name) { return !TrainsIn(graph, name); });
  remove(trains.copies, [&](const CopiedTensor& copy) {
    return !TrainsIn(graph, copy.tensor) || !TrainsIn(graph, copy.copy);
  });
  return trains;
}

std::string TieSummary(const TieReport& report) {
  std::vector<std::string> parts;
  if (!report.untied.empty()) parts.push_back(UntiedText(report.untied));
  if (!report.tied.empty()) {
    for (const bool is_asked : {true, false}) {
      std::vector<std::string> ties;
      for (const CopiedTensor& tie : report.tied) {
        if (tie.is_asked == is_asked) ties.push_back(TiedText(tie));
      }
      if (ties.empty()) continue;
      // A module that is called often has many; the user knows those that were asked for.
      const size_t more = is_asked ? 0 : ties.size() - std::min(ties.size(), kNamedTies);
      ties.resize(ties.size() - more);
      const char* const by = is_asked ? "tied by --tie: " : "tied copies of one parameter: ";
      parts.push_back(absl::StrCat(by, absl::StrJoin(ties, ", "),
                                   more > 0 ? absl::StrCat(" and ", more, " more") : ""));
    }
  }
  if (!report.kept.empty()) parts.push_back(KeptText(report.kept));
  if (!report.restored.empty()) {
    const bool is_one = report.restored.size() == 1;
    parts.push_back(absl::StrCat("restored ", report.restored.size(), is_one ? " bias" : " biases",
                                 " of zeros that the exporter had left out"));
  }
  return absl::StrJoin(parts, "; ");
}

std::vector<std::string> CopyTexts(const TieReport& report) {
  std::vector<std::string> texts;
  for (const CopiedTensor& copy : report.copies) {
    texts.push_back(absl::StrCat(copy.tensor, " and ", copy.copy, " hold the same numbers",
                                 copy.transposed ? ", transposed" : ""));
  }
  return texts;
}

std::string TiesText(const TieReport& report, const Graph& graph) {
  const TieReport trains = TiesThatTrain(report, graph);
  const std::string summary = TieSummary(trains);
  std::string text;
  if (!summary.empty()) absl::StrAppend(&text, "ties   ", Printable(summary), "\n");
  const std::vector<std::string> copies = CopyTexts(trains);
  for (size_t i = 0; i < copies.size() && i < kNamedTies; ++i) {
    absl::StrAppend(&text, "note   ", Printable(copies[i]), "; --tie auto trains them as one\n");
  }
  if (copies.size() > kNamedTies) {
    absl::StrAppend(&text, "note   ", copies.size() - kNamedTies,
                    " more such pairs; graph_runner inspect lists them\n");
  }
  return text;
}

std::string TieList(const TieReport& report, const Graph& graph) {
  const TieReport trains = TiesThatTrain(report, graph);
  std::string text;
  if (!trains.untied.empty()) {
    absl::StrAppend(&text, "untied: ", Counted(trains.untied.size(), "new tensor"),
                    ", each a copy of a shared one\n");
  }
  for (const UntiedTensor& untied : trains.untied) {
    absl::StrAppend(&text, "  ", Printable(untied.name), ", a copy of ", Printable(untied.from),
                    ", for ", Printable(untied.reader), untied.is_asked ? " (by --untie)" : "",
                    "\n");
  }
  if (!trains.kept.empty() || !trains.tied.empty()) absl::StrAppend(&text, "tied:\n");
  for (const KeptTie& tie : trains.kept) {
    absl::StrAppend(&text, "  ", Printable(TieText(tie)), "\n");
  }
  for (const CopiedTensor& tie : trains.tied) {
    absl::StrAppend(&text, "  ", Printable(TiedText(tie)), tie.is_asked ? " (by --tie)\n" : "\n");
  }
  if (!trains.restored.empty()) {
    absl::StrAppend(&text, "restored, of zeros: ", Printable(absl::StrJoin(trains.restored, ", ")),
                    "\n");
  }
  for (const std::string& copy : CopyTexts(trains)) {
    absl::StrAppend(&text, "could be tied: ", Printable(copy), "; --tie auto trains them as one\n");
  }
  return text;
}

nlohmann::ordered_json TiesJson(const TieReport& report, const Graph& graph) {
  using Json = nlohmann::ordered_json;
  const TieReport trains = TiesThatTrain(report, graph);
  const auto copies = [](const std::vector<CopiedTensor>& tensors) {
    Json rows = Json::array();
    for (const CopiedTensor& one : tensors) {
      rows.push_back({{"tensor", one.tensor}, {"copy", one.copy}, {"transposed", one.transposed}});
    }
    return rows;
  };
  Json untied = Json::array();
  for (const UntiedTensor& one : trains.untied) {
    untied.push_back({{"name", one.name}, {"from", one.from}, {"reader", one.reader}});
  }
  Json kept = Json::array();
  for (const KeptTie& tie : trains.kept) {
    kept.push_back({{"tensor", tie.tensor}, {"readers", tie.readers}});
  }
  return {{"untied", std::move(untied)},
          {"kept", std::move(kept)},
          {"tied", copies(trains.tied)},
          {"copies", copies(trains.copies)},
          {"restored", trains.restored}};
}

std::string TrainingModeText(const TrainingModeNodes& nodes) {
  if (!nodes.any()) return "";
  std::vector<std::string> parts;
  if (nodes.batch_normalizations > 0) {
    parts.push_back(absl::StrCat(nodes.batch_normalizations, " BatchNormalization"));
  }
  if (nodes.dropouts > 0) parts.push_back(absl::StrCat(nodes.dropouts, " Dropout"));
  return absl::StrCat("note   the file is in training mode: ", absl::StrJoin(parts, ", "),
                      "; --export-mode inference writes it for inference\n");
}

}  // namespace weft
