// TfIdfVectorizer: counts of n-grams, with gaps of equal length between their tokens.
#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ops/value_kernel.h"
#include "platform/status_macros.h"

namespace weft::cpu {
namespace {

constexpr int kNoGram = -1;

// The n-grams of the pool as a tree: a path of tokens from the root is an n-gram, or begins one.
class GramTree {
 public:
  int Step(int from, int64_t token) const {
    const auto found = children_.find({from, token});
    return found == children_.end() ? -1 : found->second;
  }
  void Add(const int64_t* tokens, int64_t length, int gram) {
    int at = 0;
    for (int64_t i = 0; i < length; ++i) {
      const auto [child, is_new] =
          children_.try_emplace({at, tokens[i]}, static_cast<int>(grams_.size()));
      if (is_new) grams_.push_back(kNoGram);
      at = child->second;
    }
    if (grams_[static_cast<size_t>(at)] == kNoGram) grams_[static_cast<size_t>(at)] = gram;
  }
  // The n-gram that ends here, or kNoGram.
  int GramAt(int node) const { return grams_[static_cast<size_t>(node)]; }

 private:
  std::map<std::pair<int, int64_t>, int> children_;
  std::vector<int> grams_ = {kNoGram};
};

struct Vectorizer {
  GramTree grams;
  std::map<std::string, int64_t> words;  // numbers of the pool's strings
  std::vector<int64_t> indexes;          // by n-gram: its place in the output
  std::vector<float> weights;
  std::string mode;
  int64_t shortest = 1;
  int64_t longest = 1;
  int64_t skips = 0;
  int64_t columns = 0;
};

absl::StatusOr<std::vector<int64_t>> PoolOf(const ValueContext& context, Vectorizer& vectorizer) {
  const Attributes& attributes = context.attributes();
  const bool is_text = context.InputTensor(0).dtype() == DType::kString;
  if (attributes.Has("pool_strings") == attributes.Has("pool_int64s") ||
      attributes.Has("pool_strings") != is_text) {
    return context.InvalidArgument(
        "expected pool_strings for strings or pool_int64s for integers, and not both");
  }
  if (!is_text) return attributes.Ints("pool_int64s");
  std::vector<int64_t> pool;
  for (const std::string& word : attributes.Strings("pool_strings")) {
    const auto number = static_cast<int64_t>(vectorizer.words.size());
    pool.push_back(vectorizer.words.try_emplace(word, number).first->second);
  }
  return pool;
}

// ngram_counts says where in the pool the n-grams of each length begin.
absl::Status AddGrams(const ValueContext& context, const std::vector<int64_t>& pool,
                      Vectorizer& vectorizer) {
  const std::vector<int64_t> begins = context.attributes().Ints("ngram_counts");
  int gram = 0;
  for (size_t i = 0; i < begins.size(); ++i) {
    const auto length = static_cast<int64_t>(i) + 1;
    const auto size = static_cast<int64_t>(pool.size());
    const int64_t end = i + 1 < begins.size() ? begins[i + 1] : size;
    if (begins[i] < 0 || begins[i] > end || end > size) {
      return context.InvalidArgument(absl::StrCat("attribute ngram_counts has ", begins[i], " at ",
                                                  i, ", expected places of the pool, ",
                                                  "ascending"));
    }
    for (int64_t at = begins[i]; at + length <= end; at += length, ++gram) {
      if (gram >= static_cast<int>(vectorizer.indexes.size())) {
        return context.InvalidArgument("the pool has more n-grams than ngram_indexes has values");
      }
      if (length < vectorizer.shortest || length > vectorizer.longest) continue;
      vectorizer.grams.Add(pool.data() + at, length, gram);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Vectorizer> MakeVectorizer(const ValueContext& context) {
  const Attributes& attributes = context.attributes();
  Vectorizer vectorizer;
  vectorizer.mode = attributes.String("mode", "");
  if (vectorizer.mode != "TF" && vectorizer.mode != "IDF" && vectorizer.mode != "TFIDF") {
    return context.InvalidArgument(
        absl::StrCat("attribute mode is '", vectorizer.mode, "', expected TF, IDF or TFIDF"));
  }
  vectorizer.indexes = attributes.Ints("ngram_indexes");
  vectorizer.weights = attributes.Floats("weights");
  vectorizer.shortest = attributes.Int("min_gram_length", 1);
  vectorizer.longest = attributes.Int("max_gram_length", 1);
  vectorizer.skips = attributes.Int("max_skip_count", 0);
  if (vectorizer.shortest < 1 || vectorizer.longest < vectorizer.shortest || vectorizer.skips < 0) {
    return context.InvalidArgument(
        "expected 1 <= min_gram_length <= max_gram_length and max_skip_count >= 0");
  }
  if (vectorizer.indexes.empty() ||
      *std::min_element(vectorizer.indexes.begin(), vectorizer.indexes.end()) < 0) {
    return context.InvalidArgument("attribute ngram_indexes has negative values, or none");
  }
  vectorizer.columns = *std::max_element(vectorizer.indexes.begin(), vectorizer.indexes.end()) + 1;
  if (vectorizer.mode != "TF" && !vectorizer.weights.empty() &&
      static_cast<int64_t>(vectorizer.weights.size()) < vectorizer.columns) {
    return context.InvalidArgument(absl::StrCat("attribute weights has ", vectorizer.weights.size(),
                                                " values, expected ", vectorizer.columns));
  }
  WEFT_ASSIGN_OR_RETURN(const std::vector<int64_t> pool, PoolOf(context, vectorizer));
  WEFT_RETURN_IF_ERROR(AddGrams(context, pool, vectorizer));
  return vectorizer;
}

// Counts the n-grams that begin anywhere in the row and whose tokens are `distance` apart.
void CountGrams(const Vectorizer& vectorizer, const std::vector<int64_t>& row, int64_t shortest,
                int64_t distance, float* counts) {
  const auto length = static_cast<int64_t>(row.size());
  for (int64_t begin = 0; begin + distance * (shortest - 1) < length; ++begin) {
    int node = 0;
    int64_t size = 1;
    for (int64_t at = begin; at < length && size <= vectorizer.longest; at += distance, ++size) {
      node = vectorizer.grams.Step(node, row[static_cast<size_t>(at)]);
      if (node < 0) break;
      const int gram = vectorizer.grams.GramAt(node);
      if (size < shortest || gram == kNoGram) continue;
      counts[vectorizer.indexes[static_cast<size_t>(gram)]] += 1;
    }
  }
}

void CountRow(const Vectorizer& vectorizer, const std::vector<int64_t>& row, float* counts) {
  int64_t shortest = vectorizer.shortest;
  const auto length = static_cast<int64_t>(row.size());
  if (shortest > length) return;
  for (int64_t distance = 1; distance - 1 <= vectorizer.skips; ++distance) {
    if (shortest > 1 && distance >= length) break;  // nothing is that far apart
    CountGrams(vectorizer, row, shortest, distance, counts);
    if (shortest > 1) continue;
    // Single tokens have no gaps: they count once.
    if (++shortest > vectorizer.longest) break;
  }
}

void Weigh(const Vectorizer& vectorizer, float* counts) {
  if (vectorizer.mode == "TF") return;
  for (int64_t i = 0; i < vectorizer.columns; ++i) {
    if (vectorizer.mode == "IDF") counts[i] = counts[i] > 0 ? 1.0F : 0.0F;
    if (!vectorizer.weights.empty()) counts[i] *= vectorizer.weights[static_cast<size_t>(i)];
  }
}

absl::Status RunTfIdfVectorizer(ValueContext& context) {
  const Tensor& input = context.InputTensor(0);
  const Shape& shape = input.shape();
  if (shape.rank() > 2) return context.InvalidArgument("expected a shape [C] or [N,C]");
  WEFT_ASSIGN_OR_RETURN(const Vectorizer vectorizer, MakeVectorizer(context));
  std::vector<int64_t> tokens;
  if (input.dtype() == DType::kString) {
    for (const std::string& word : input.strings()) {
      const auto found = vectorizer.words.find(word);
      tokens.push_back(found == vectorizer.words.end() ? -1 : found->second);
    }
  } else {
    WEFT_ASSIGN_OR_RETURN(tokens, ToInt64s(input));
  }
  const int64_t rows = shape.rank() == 2 ? shape.dim(0) : 1;
  const int64_t length = shape.rank() == 0 ? 1 : shape.dim(shape.rank() - 1);
  const Shape whole =
      shape.rank() == 2 ? Shape{rows, vectorizer.columns} : Shape{vectorizer.columns};
  WEFT_ASSIGN_OR_RETURN(Tensor output, Tensor::Zeros(DType::kFloat32, whole));
  float* counts = output.mutable_data<float>().data();
  for (int64_t row = 0; row < rows; ++row, counts += vectorizer.columns) {
    const auto begin = tokens.begin() + row * length;
    CountRow(vectorizer, std::vector<int64_t>(begin, begin + length), counts);
    Weigh(vectorizer, counts);
  }
  context.SetOutput(0, std::move(output));
  return absl::OkStatus();
}

WEFT_REGISTER_VALUE_KERNEL("", "TfIdfVectorizer", RunTfIdfVectorizer);

}  // namespace
}  // namespace weft::cpu
