//! A single HTML file that contains everything and is readable without a network.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use entresol_media::files;

use super::table::Table;
use crate::error::BenchError;

const STYLE: &str = "
:root{color-scheme:light dark;--ink:#1c1e21;--soft:#666c75;--rule:#d8dce2;--paper:#fff;
--c0:#1f6fb2;--c1:#c4661f;--c2:#3a8a4d;--c3:#8a4fa3;
--c4:#b03a48;--c5:#0f8b8d;--c6:#8d7514;--c7:#5b6470}
@media(prefers-color-scheme:dark){:root{--ink:#e6e8eb;--soft:#9aa1ab;--rule:#343a42;--paper:#15181c;
--c0:#5aa7e8;--c1:#e8955a;--c2:#6cc082;--c3:#c08fd6;
--c4:#ea7f8b;--c5:#4fc3c5;--c6:#d0b85a;--c7:#a9b1bc}}
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:60rem;
margin:2rem auto;padding:0 1rem;overflow-wrap:anywhere}
h1{font-size:1.5rem}h2{font-size:1.1rem;margin-top:2rem}p.note{color:var(--soft)}
table{border-collapse:collapse;margin:.8rem 0;font-variant-numeric:tabular-nums}
th,td{padding:.2rem .7rem;border-bottom:1px solid var(--rule);text-align:right}
th:first-child,td:first-child{text-align:left}
figure{display:inline-block;vertical-align:top;width:28.7rem;max-width:100%;
margin:.8rem .8rem .8rem 0}
svg{display:block;width:100%;height:auto;font:12px system-ui,sans-serif}
svg text{fill:var(--ink)}svg .title{font-weight:600;font-size:13px}
svg .tick,svg .axis{fill:var(--soft)}
.grid{stroke:var(--rule);fill:none}.line{fill:none;stroke-width:2}.theirs{stroke-dasharray:5 4}
.mark{fill:var(--paper);stroke-width:1.6}.paper{stroke:var(--ink);stroke-width:2.5;fill:none}
.s0{fill:var(--c0)}.s1{fill:var(--c1)}.s2{fill:var(--c2)}.s3{fill:var(--c3)}
.s4{fill:var(--c4)}.s5{fill:var(--c5)}.s6{fill:var(--c6)}.s7{fill:var(--c7)}
.l0{stroke:var(--c0)}.l1{stroke:var(--c1)}.l2{stroke:var(--c2)}.l3{stroke:var(--c3)}
.l4{stroke:var(--c4)}.l5{stroke:var(--c5)}.l6{stroke:var(--c6)}.l7{stroke:var(--c7)}
.whisker{fill:none;stroke-width:1.2;opacity:.65}details{margin:.4rem 0 1.6rem}
summary{cursor:pointer;color:var(--soft)}
ul{padding-left:1.2rem}dt{font-weight:600;margin-top:.8rem}dd{margin:.1rem 0 .1rem 1.2rem}
.tables{overflow-x:auto;overflow-wrap:normal}td{white-space:nowrap}
td.long{white-space:normal;min-width:14rem;text-align:left}td.fails{color:var(--c4);font-weight:600}
pre{overflow-x:auto;border:1px solid var(--rule);padding:.6rem}
";

/// Number of letters up to which the text of a cell stays in one line.
const SHORT_CELL_MAX: usize = 24;

/// Page that grows section by section.
#[derive(Debug, Clone)]
pub struct Page {
    title: String,
    body: String,
}

impl Page {
    /// Creates a page that holds only its title.
    #[must_use]
    pub fn new(title: &str) -> Page {
        Page { title: title.to_owned(), body: String::new() }
    }

    /// Begins a section.
    pub fn section(&mut self, heading: &str) {
        let _ = writeln!(self.body, "<h2>{}</h2>", escape(heading));
    }

    /// Adds a paragraph.
    pub fn note(&mut self, text: &str) {
        let _ = writeln!(self.body, "<p class=\"note\">{}</p>", escape(text));
    }

    /// Adds a drawing from [`super::svg`].
    pub fn drawing(&mut self, svg: &str) {
        let _ = writeln!(self.body, "<figure>{svg}</figure>");
    }

    /// Adds a drawing that is folded away.
    pub fn folded_drawing(&mut self, summary: &str, svg: &str) {
        let _ = write!(self.body, "<details><summary>{}</summary>", escape(summary));
        self.drawing(svg);
        self.body.push_str("</details>\n");
    }

    /// Adds sentences as a list.
    pub fn list(&mut self, sentences: &[String]) {
        self.body.push_str("<ul>");
        for sentence in sentences {
            let _ = write!(self.body, "<li>{}</li>", escape(sentence));
        }
        self.body.push_str("</ul>\n");
    }

    /// Adds terms, each with sentences about it.
    pub fn terms(&mut self, terms: &[(String, Vec<String>)]) {
        self.body.push_str("<dl>");
        for (term, sentences) in terms {
            let _ = write!(self.body, "<dt>{}</dt>", escape(term));
            for sentence in sentences {
                let _ = write!(self.body, "<dd>{}</dd>", escape(sentence));
            }
        }
        self.body.push_str("</dl>\n");
    }

    /// Adds a table that is folded away.
    pub fn folded_table(&mut self, summary: &str, table: &Table) {
        let _ = write!(self.body, "<details><summary>{}</summary>", escape(summary));
        self.table(table);
        self.body.push_str("</details>\n");
    }

    /// Adds a table, which scrolls by itself where the page is too narrow. A cell that begins with
    /// FAIL is marked, and only a long cell has several lines.
    pub fn table(&mut self, table: &Table) {
        let title = escape(&table.title);
        let _ = writeln!(self.body, "<p>{title}</p><div class=\"tables\"><table><tr>");
        for column in &table.columns {
            let _ = write!(self.body, "<th>{}</th>", escape(column));
        }
        for row in &table.rows {
            self.body.push_str("</tr>\n<tr>");
            for cell in row {
                let is_long = cell.chars().count() > SHORT_CELL_MAX;
                let class = match (cell.starts_with("FAIL"), is_long) {
                    (true, true) => " class=\"fails long\"",
                    (true, false) => " class=\"fails\"",
                    (false, true) => " class=\"long\"",
                    (false, false) => "",
                };
                let _ = write!(self.body, "<td{class}>{}</td>", escape(cell));
            }
        }
        self.body.push_str("</tr></table></div>\n");
    }

    /// Adds the results as `--json` prints them, folded away.
    pub fn raw(&mut self, json: &str) {
        let _ = writeln!(
            self.body,
            "<details><summary>All figures</summary><pre>{}</pre></details>",
            escape(json)
        );
    }

    /// Returns the whole document.
    #[must_use]
    pub fn render(&self) -> String {
        format!(
            "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
             <meta name=\"viewport\" content=\"width=device-width\">\
             <title>{0}</title><style>{STYLE}</style></head>\n\
             <body><h1>{0}</h1>\n{1}</body></html>\n",
            escape(&self.title),
            self.body
        )
    }

    /// Writes the document as `NAME.html` into `folder`, which is created if it does not exist.
    ///
    /// # Errors
    /// Fails if the folder or the file cannot be written.
    pub fn save(&self, folder: &Path, name: &str) -> Result<PathBuf, BenchError> {
        let path = folder.join(format!("{name}.html"));
        let error = |source| BenchError::File { path: path.clone(), source };
        files::create_directories(folder).map_err(error)?;
        files::write_atomically(&path, self.render().as_bytes()).map_err(error)?;
        Ok(path)
    }
}

/// Escapes text for HTML and SVG.
#[must_use]
pub fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            other => safe.push(other),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_needs_no_network_and_lets_no_markup_in() {
        let mut page = Page::new("a <b> & c");
        page.section("s");
        let mut table = Table::new("t", &["x<y"]);
        table.row(vec!["<script>".into()]);
        table.row(vec!["FAIL".into()]);
        page.table(&table);
        let folder = tempfile::tempdir().unwrap();
        let path = page.save(&folder.path().join("new"), "cache").unwrap();
        let html = entresol_media::files::read_to_string(&path).unwrap();
        assert!(!html.contains("http") && !html.contains("<script>") && !html.contains("<b>"));
        assert!(html.contains("x&lt;y") && html.ends_with("</html>\n"));
        assert_eq!(html.matches("<td class=\"fails\">FAIL</td>").count(), 1);
    }
}
