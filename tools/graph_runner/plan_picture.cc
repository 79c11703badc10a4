#include "tools/graph_runner/plan_picture.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "graph/node_class.h"
#include "graph/schedule/action_list.h"
#include "graph/schedule/schedule_player.h"
#include "placement/search/plan_choice.h"
#include "placement/simulation/partition_model.h"
#include "placement/simulation/simulator.h"
#include "placement/stage_assignment.h"
#include "platform/status_macros.h"
#include "tools/graph_runner/quantity.h"

namespace weft {
namespace {

constexpr int kMostNodes = 1500;
constexpr int kMostRanks = 64;
constexpr int kNodeWidth = 170;
constexpr int kColumnWidth = 230;
constexpr int kRowHeight = 30;
constexpr double kTimelineWidth = 1100;

// Told apart by colour-blind readers too (Okabe and Ito, 2008), lightened.
std::string ColourOf(int stage) {
  static const std::vector<std::string>* const colours = new std::vector<std::string>{
      "#9fd0f2", "#f6cf80", "#8fd6bd", "#f0b48f", "#dcb6cf", "#f4ec9a", "#8fb8dc", "#cccccc"};
  return (*colours)[static_cast<size_t>(stage) % colours->size()];
}

std::string Escaped(const std::string& text) {
  return absl::StrReplaceAll(text,
                             {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}});
}

// The forward nodes of a staged graph in topological order, and which of them reads which.
struct ForwardPicture {
  struct Box {
    std::string name;
    std::string op;
    int stage = 0;
  };
  std::vector<Box> boxes;
  std::vector<std::pair<int, int>> arrows;
  int left_out = 0;  // boxes beyond kMostNodes
};

absl::StatusOr<ForwardPicture> MakePicture(const Graph& graph, const Plan& plan) {
  Graph staged = graph.Clone();
  WEFT_RETURN_IF_ERROR(AssignStages(staged, plan).status());
  WEFT_ASSIGN_OR_RETURN(const std::vector<NodeId> order, staged.TopologicalOrder());
  ForwardPicture picture;
  std::map<NodeId, int> index;
  for (const NodeId id : order) {
    const Node& node = staged.node(id);
    if (!IsForward(node)) continue;
    if (picture.boxes.size() == kMostNodes) {
      ++picture.left_out;
      continue;
    }
    index[id] = static_cast<int>(picture.boxes.size());
    picture.boxes.push_back({node.name, node.op, node.stage.value});
    for (const ValueId input : node.inputs) {
      if (!input.valid() || staged.value(input).source != ValueSource::kNode) continue;
      const auto from = index.find(staged.value(input).producer);
      if (from != index.end()) picture.arrows.push_back({from->second, index[id]});
    }
  }
  return picture;
}

// A column per stage, its nodes from top to bottom.
std::string GraphSvg(const ForwardPicture& picture, int stages) {
  std::vector<int> rows(stages);
  std::vector<std::pair<int, int>> places;
  for (const ForwardPicture::Box& box : picture.boxes) {
    places.push_back({20 + box.stage * kColumnWidth, 40 + rows[box.stage]++ * kRowHeight});
  }
  const int height = 60 + kRowHeight * *std::max_element(rows.begin(), rows.end());
  std::string svg =
      absl::StrFormat("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\">\n",
                      40 + stages * kColumnWidth, height);
  for (int stage = 0; stage < stages; ++stage) {
    absl::StrAppendFormat(&svg, "<text x=\"%d\" y=\"24\" class=\"h\">stage %d: %d nodes</text>\n",
                          20 + stage * kColumnWidth, stage, rows[stage]);
  }
  for (const auto& [from, to] : picture.arrows) {
    const auto [x1, y1] = places[from];
    const auto [x2, y2] = places[to];
    const bool crosses = picture.boxes[from].stage != picture.boxes[to].stage;
    const bool is_next = x1 == x2 && y2 == y1 + kRowHeight;
    if (is_next) {
      absl::StrAppendFormat(&svg, "<path d=\"M%d %d V%d\"/>\n", x1 + kNodeWidth / 2, y1 + 22, y2);
      continue;
    }
    const int bend = crosses ? 40 : 24;
    absl::StrAppendFormat(&svg, "<path d=\"M%d %d C%d %d %d %d %d %d\"%s/>\n", x1 + kNodeWidth,
                          y1 + 11, x1 + kNodeWidth + bend, y1 + 11,
                          crosses ? x2 - bend : x2 + kNodeWidth + bend, y2 + 11,
                          crosses ? x2 : x2 + kNodeWidth, y2 + 11, crosses ? " class=\"x\"" : "");
  }
  for (size_t i = 0; i < places.size(); ++i) {
    const ForwardPicture::Box& box = picture.boxes[i];
    const std::string shown =
        box.name.size() > 24 ? "..." + box.name.substr(box.name.size() - 21) : box.name;
    absl::StrAppendFormat(
        &svg,
        "<g><title>%s (%s)</title><rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"22\" rx=\"4\" "
        "fill=\"%s\"/><text x=\"%d\" y=\"%d\">%s</text></g>\n",
        Escaped(box.name), Escaped(box.op), places[i].first, places[i].second, kNodeWidth,
        ColourOf(box.stage), places[i].first + 6, places[i].second + 15, Escaped(shown));
  }
  return absl::StrCat(svg, "</svg>\n");
}

std::string ColourOfSpan(const TimelineSpan& span) {
  if (span.stream == StreamKind::kCommunication) return "#d55e00";
  switch (span.name.empty() ? ' ' : span.name[0]) {
    case 'F':
      return "#56b4e9";
    case 'B':
      return span.name == "Begin" ? "#999999" : "#009e73";
    case 'W':
      return "#e69f00";
    default:
      return "#999999";
  }
}

std::string TimelineSvg(const Simulation& simulation, const StepModel& model) {
  const int ranks = std::min(kMostRanks, static_cast<int>(model.ranks.size()));
  double end = 1e-9;
  for (const TimelineSpan& span : simulation.timeline) end = std::max(end, span.end);
  std::string svg =
      absl::StrFormat("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%d\">\n",
                      kTimelineWidth + 120, 40 + ranks * 36);
  for (int rank = 0; rank < ranks; ++rank) {
    absl::StrAppendFormat(&svg, "<text x=\"8\" y=\"%d\">rank %d</text>\n", 22 + rank * 36, rank);
  }
  for (const TimelineSpan& span : simulation.timeline) {
    if (span.rank >= ranks) continue;
    const bool computes = span.stream == StreamKind::kCompute;
    const double x = 80 + kTimelineWidth * span.start / end;
    const double width = std::max(0.6, kTimelineWidth * (span.end - span.start) / end);
    const int y = 6 + span.rank * 36 + (computes ? 0 : 23);
    absl::StrAppendFormat(
        &svg,
        "<g><title>%s: %s</title><rect x=\"%.2f\" y=\"%d\" width=\"%.2f\" height=\"%d\" "
        "fill=\"%s\"/>",
        Escaped(span.name), DurationText(span.end - span.start), x, y, width, computes ? 22 : 8,
        ColourOfSpan(span));
    if (computes && width > 26) {
      absl::StrAppendFormat(&svg, "<text x=\"%.2f\" y=\"%d\">%s</text>", x + 3, y + 15,
                            Escaped(span.name));
    }
    absl::StrAppend(&svg, "</g>\n");
  }
  absl::StrAppendFormat(&svg, "<text x=\"80\" y=\"%d\">0</text><text x=\"%.0f\" y=\"%d\">%s</text>",
                        30 + ranks * 36, 40 + kTimelineWidth, 30 + ranks * 36, DurationText(end));
  return absl::StrCat(svg, "\n</svg>\n");
}

std::string GridOf(const Plan& plan, const std::vector<Partition>& partitions) {
  std::vector<ActionList> lists;
  size_t micro_batches = 0;
  for (int place = 0; place < plan.mesh.pipeline; ++place) {
    const RankId rank = plan.mesh.RankOf({0, 0, place});
    lists.push_back(partitions[static_cast<size_t>(rank.value)].actions);
    micro_batches =
        std::max(micro_batches, partitions[static_cast<size_t>(rank.value)].micro_batches.size());
  }
  return ActionGrid(lists, static_cast<int>(micro_batches));
}

constexpr char kStyle[] =
    "<style>body{font:14px sans-serif;margin:24px;color:#222;background:#fff}"
    "svg{display:block;max-width:none}div{overflow:auto}"
    "text{font:11px sans-serif}text.h{font-weight:bold}"
    "path{fill:none;stroke:#888}path.x{stroke:#c00}pre{font:12px monospace}</style>\n";

}  // namespace

absl::StatusOr<std::string> PlanDot(const Graph& graph, const Plan& plan) {
  WEFT_ASSIGN_OR_RETURN(const ForwardPicture picture, MakePicture(graph, plan));
  std::string dot = "digraph plan {\n  node [shape=box, style=filled, fontname=sans];\n";
  const auto quoted = [](const std::string& text) {
    return absl::StrCat("\"", absl::StrReplaceAll(text, {{"\\", "\\\\"}, {"\"", "\\\""}}), "\"");
  };
  for (int stage = 0; stage < plan.num_stages(); ++stage) {
    absl::StrAppend(&dot, "  subgraph cluster_", stage, " {\n    label=\"stage ", stage, "\";\n");
    for (size_t i = 0; i < picture.boxes.size(); ++i) {
      if (picture.boxes[i].stage != stage) continue;
      absl::StrAppend(&dot, "    n", i, " [label=", quoted(picture.boxes[i].name), ", fillcolor=\"",
                      ColourOf(stage), "\"];\n");
    }
    absl::StrAppend(&dot, "  }\n");
  }
  for (const auto& [from, to] : picture.arrows) {
    absl::StrAppend(&dot, "  n", from, " -> n", to, ";\n");
  }
  return absl::StrCat(dot, "}\n");
}

absl::StatusOr<std::string> PlanHtml(const Graph& graph, const Plan& plan,
                                     const std::vector<Partition>& partitions,
                                     const CostModel& costs) {
  WEFT_ASSIGN_OR_RETURN(const ForwardPicture picture, MakePicture(graph, plan));
  WEFT_ASSIGN_OR_RETURN(const StepModel model, ModelOfPartitions(partitions, plan.workers, costs));
  SimulationOptions options;
  options.timeline = TimelineDetail::kActions;
  WEFT_ASSIGN_OR_RETURN(const Simulation simulation, SimulateStep(model, options));
  const std::string title = absl::StrCat("plan ", ParallelText(ChoiceOf(plan, 0)));
  std::string html = absl::StrCat(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>", Escaped(title),
      "</title>\n", kStyle, "</head><body>\n<h1>", Escaped(title), "</h1>\n<p>",
      plan.mesh.ToString(), " on ", plan.mesh.size(), " workers; a step is predicted to take ",
      DurationText(simulation.step_seconds), "</p>\n<h2>Forward pass by stage</h2>\n<div>",
      GraphSvg(picture, plan.num_stages()), "</div>\n");
  if (picture.left_out > 0) {
    absl::StrAppend(&html, "<p>", picture.left_out, " more nodes are not drawn.</p>\n");
  }
  absl::StrAppend(&html,
                  "<h2>Actions</h2>\n<p>F forward, B backward, W weight gradients, U update; a row "
                  "per place of the pipeline.</p>\n<div><pre>",
                  Escaped(GridOf(plan, partitions)),
                  "</pre></div>\n<h2>Timeline</h2>\n<p>One simulated step; below each rank its "
                  "collectives (red).</p>\n<div>",
                  TimelineSvg(simulation, model), "</div>\n</body></html>\n");
  return html;
}

}  // namespace weft
