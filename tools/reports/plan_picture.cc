#include "tools/reports/plan_picture.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "graph/node_class.h"
#include "graph/schedule/action_list.h"
#include "graph/schedule/schedule_simulator.h"
#include "placement/cost/prediction_error.h"
#include "placement/pipeline/stage_assignment.h"
#include "placement/search/plan_choice.h"
#include "placement/simulation/partition_model.h"
#include "placement/simulation/simulator.h"
#include "platform/byte_quantity.h"
#include "platform/status_macros.h"
#include "tensor/dtype.h"
#include "tools/console/quantity.h"

namespace weft {
namespace {

constexpr int kMaxNodes = 1500;
constexpr int kMaxRanks = 64;
constexpr int kNodeWidth = 215;
constexpr int kColumnWidth = 280;
constexpr int kRowHeight = 30;
constexpr double kTimelineWidth = 1100;
constexpr char kWaitColour[] = "#e8e8e8";

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

// Begin and end tell nodes of one kind apart, as in "stem.bn/running/RunningTerm".
std::string ShortenedInMiddle(const std::string& name) {
  if (name.size() <= 32) return name;
  return absl::StrCat(name.substr(0, 20), "..", name.substr(name.size() - 10));
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
  int left_out = 0;  // boxes beyond kMaxNodes
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
    if (picture.boxes.size() == kMaxNodes) {
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
    const std::string shown = ShortenedInMiddle(box.name);
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

// Spans of a rank's compute stream in which it waits for a peer.
bool IsWait(const TimelineSpan& span) {
  return span.stream == StreamKind::kCompute && absl::StartsWith(span.name, "wait for ");
}

// One simulated step: a span per action and collective, and what of the actions is waiting.
struct Timeline {
  std::vector<TimelineSpan> spans;
  std::vector<TimelineSpan> waits;
};

absl::StatusOr<Timeline> SimulateTimeline(const StepModel& model) {
  Timeline timeline;
  SimulationOptions options;
  options.timeline = TimelineDetail::kActions;
  WEFT_ASSIGN_OR_RETURN(Simulation actions, SimulateStep(model, options));
  timeline.spans = std::move(actions.timeline);
  options.timeline = TimelineDetail::kInstructions;
  WEFT_ASSIGN_OR_RETURN(Simulation instructions, SimulateStep(model, options));
  for (TimelineSpan& span : instructions.timeline) {
    if (IsWait(span)) timeline.waits.push_back(std::move(span));
  }
  return timeline;
}

// The longest time in an action without a wait.
std::pair<double, double> LongestWork(const TimelineSpan& action,
                                      const std::vector<TimelineSpan>& waits) {
  std::pair<double, double> longest = {action.start, action.start};
  double begin = action.start;
  const auto end_at = [&](double end) {
    if (end - begin > longest.second - longest.first) longest = {begin, end};
  };
  for (const TimelineSpan& wait : waits) {
    if (wait.rank != action.rank || wait.end <= begin || wait.start >= action.end) continue;
    end_at(wait.start);
    begin = wait.end;
  }
  end_at(action.end);
  return longest;
}

// Behind what has several stages, each in its colour.
std::string Background(int place, const Plan& plan) {
  if (plan.chunks == 1) return ColourOf(place);
  std::string stripes;
  for (int chunk = 0; chunk < plan.chunks; ++chunk) {
    absl::StrAppendFormat(&stripes, ",%s %d%% %d%%", ColourOf(place + chunk * plan.mesh.pipeline),
                          100 * chunk / plan.chunks, 100 * (chunk + 1) / plan.chunks);
  }
  return absl::StrCat("linear-gradient(90deg", stripes, ")");
}

std::string Legend() {
  const std::pair<const char*, const char*> entries[] = {
      {"#56b4e9", "F forward"}, {"#009e73", "B backward"}, {"#e69f00", "W weight gradients"},
      {"#999999", "U update"},  {"#e8e8e8", "waiting"},    {"#d55e00", "collectives"}};
  std::string html = "<p>";
  for (const auto& [colour, text] : entries) {
    absl::StrAppend(&html, "<span class=\"k\" style=\"background:", colour, "\"></span>", text,
                    "\n");
  }
  return absl::StrCat(html, "</p>\n");
}

std::string TimelineSvg(const Timeline& timeline, const StepModel& model) {
  const int ranks = std::min(kMaxRanks, static_cast<int>(model.ranks.size()));
  double end = 1e-9;
  for (const TimelineSpan& span : timeline.spans) end = std::max(end, span.end);
  std::string svg =
      absl::StrFormat("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%d\">\n",
                      kTimelineWidth + 120, 40 + ranks * 36);
  for (int rank = 0; rank < ranks; ++rank) {
    absl::StrAppendFormat(&svg, "<text x=\"8\" y=\"%d\">rank %d</text>\n", 22 + rank * 36, rank);
  }
  const auto add = [&](const TimelineSpan& span, const std::string& colour) {
    const bool computes = span.stream == StreamKind::kCompute;
    const double x = 80 + kTimelineWidth * span.start / end;
    const double width = std::max(0.6, kTimelineWidth * (span.end - span.start) / end);
    absl::StrAppendFormat(
        &svg,
        "<rect x=\"%.2f\" y=\"%d\" width=\"%.2f\" height=\"%d\" fill=\"%s\"><title>%s: "
        "%s</title></rect>\n",
        x, 6 + span.rank * 36 + (computes ? 0 : 23), width, computes ? 22 : 8, colour,
        Escaped(span.name), DurationText(span.end - span.start));
  };
  for (const TimelineSpan& span : timeline.spans) {
    if (span.rank < ranks) add(span, ColourOfSpan(span));
  }
  for (const TimelineSpan& span : timeline.waits) {
    if (span.rank < ranks) add(span, kWaitColour);
  }
  for (const TimelineSpan& span : timeline.spans) {
    if (span.rank >= ranks || span.stream != StreamKind::kCompute) continue;
    const auto [begin, until] = LongestWork(span, timeline.waits);
    if (kTimelineWidth * (until - begin) / end < 6 + 7 * static_cast<double>(span.name.size())) {
      continue;
    }
    absl::StrAppendFormat(&svg, "<text x=\"%.2f\" y=\"%d\">%s</text>\n",
                          83 + kTimelineWidth * begin / end, 21 + span.rank * 36,
                          Escaped(span.name));
  }
  absl::StrAppendFormat(&svg, "<text x=\"80\" y=\"%d\">0</text><text x=\"%.0f\" y=\"%d\">%s</text>",
                        30 + ranks * 36, 40 + kTimelineWidth, 30 + ranks * 36, DurationText(end));
  svg = absl::StrCat(svg, "\n</svg>\n");
  const int left_out = static_cast<int>(model.ranks.size()) - ranks;
  if (left_out > 0) absl::StrAppend(&svg, "<p>", left_out, " more ranks are not drawn.</p>\n");
  return svg;
}

// A row per place of the pipeline, a cell per replica and shard, in the colours of their stages.
std::string WorkersTable(const Plan& plan, const std::vector<Partition>& partitions) {
  const Mesh& mesh = plan.mesh;
  const int columns = std::min(kMaxRanks, mesh.data * mesh.tensor);
  std::string html = "<div><table>\n<tr><th></th>";
  for (int column = 0; column < columns; ++column) {
    absl::StrAppend(&html, "<th>replica ", column / mesh.tensor);
    if (mesh.tensor > 1) absl::StrAppend(&html, "<br>shard ", column % mesh.tensor);
    absl::StrAppend(&html, "</th>");
  }
  absl::StrAppend(&html, "</tr>\n");
  for (int place = 0; place < mesh.pipeline; ++place) {
    absl::StrAppend(&html, "<tr><th>stage ", place);
    for (int chunk = 1; chunk < plan.chunks; ++chunk) {
      absl::StrAppend(&html, ", ", place + chunk * mesh.pipeline);
    }
    absl::StrAppend(&html, "</th>");
    for (int column = 0; column < columns; ++column) {
      const RankId rank = mesh.RankOf({column / mesh.tensor, column % mesh.tensor, place});
      int64_t bytes = 0;
      for (const VariableShard& shard : partitions[static_cast<size_t>(rank.value)].variables) {
        bytes += DTypeBytes(shard.dtype, shard.local_shape.num_elements());
      }
      absl::StrAppend(&html, "<td style=\"background:", Background(place, plan), "\">rank ",
                      rank.value, "<br>worker ", plan.workers[rank.value], "<br>",
                      ByteQuantity(bytes), " of variables</td>");
    }
    absl::StrAppend(&html, "</tr>\n");
  }
  absl::StrAppend(&html, "</table></div>\n");
  const int left_out = mesh.data * mesh.tensor - columns;
  if (left_out > 0) absl::StrAppend(&html, "<p>", left_out, " more columns are not drawn.</p>\n");
  return html;
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
    "table{border-collapse:collapse}td,th{border:1px solid #fff;padding:5px 9px;"
    "font-size:12px;text-align:left}.k{display:inline-block;width:14px;height:14px;"
    "margin:0 5px 0 14px;vertical-align:-2px}"
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
                                     const CostModel& costs, const HostPaths& host) {
  WEFT_ASSIGN_OR_RETURN(const ForwardPicture picture, MakePicture(graph, plan));
  WEFT_ASSIGN_OR_RETURN(
      const StepModel model,
      ModelOfPartitions(partitions, plan.workers, costs, {.per_node = false, .host = host}));
  WEFT_ASSIGN_OR_RETURN(const Timeline timeline, SimulateTimeline(model));
  const std::string title = absl::StrCat("plan ", ParallelText(ChoiceOf(plan, 0)));
  std::string html = absl::StrCat(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>", Escaped(title),
      "</title>\n", kStyle, "</head><body>\n<h1>", Escaped(title), "</h1>\n<p>",
      plan.mesh.ToString(), " on ", plan.mesh.size(), " workers; a step is predicted to take ",
      DurationText(plan.prediction.step_seconds), "</p>\n",
      costs.is_calibrated() ? "" : absl::StrCat("<p>", Escaped(UncalibratedText()), "</p>\n"),
      "<h2>Workers</h2>\n", WorkersTable(plan, partitions),
      "<h2>Forward pass by stage</h2>\n<p>Red: what goes from one stage to another.</p>\n<div>",
      GraphSvg(picture, plan.num_stages()), "</div>\n");
  if (picture.left_out > 0) {
    absl::StrAppend(&html, "<p>", picture.left_out, " more nodes are not drawn.</p>\n");
  }
  absl::StrAppend(&html,
                  "<h2>Actions</h2>\n<p>F forward, B backward, W weight gradients, U update; a row "
                  "per place of the pipeline.</p>\n<div><pre>",
                  Escaped(GridOf(plan, partitions)),
                  "</pre></div>\n<h2>Timeline</h2>\n<p>One simulated step; below each rank its "
                  "collectives.</p>\n",
                  Legend(), "<div>", TimelineSvg(timeline, model), "</div>\n</body></html>\n");
  return html;
}

}  // namespace weft
