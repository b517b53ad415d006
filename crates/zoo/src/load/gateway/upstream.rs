//! The fast server over HTTP: answers `tools/call` with a text of the size asked for, and the rest as the plain server does.
//!
//! # Invariants
//!
//! - One answer is one write, as with the fast server over pipes.

use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::ExitCode;
use std::thread;

use unhang_demo_servers::{
    arguments::ProgramArguments,
    pipe::{self, ClientMessage},
    plain_server::Plain,
};

use super::super::echo_server::{call, rest_of_answer};

/// The stack of a connection's thread, which needs little.
const STACK: usize = 256 << 10;
/// A longer body is refused.
const LONGEST: usize = 1 << 20;

/// `echoes-http`: says its URL, and serves until stdin ends.
pub(crate) fn echo_over_http(_: &ProgramArguments) -> io::Result<ExitCode> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    pipe::send_line(&format!("http://{}/mcp", listener.local_addr()?))?;
    thread::Builder::new().spawn(move || {
        for stream in listener.incoming().flatten() {
            // A connection that breaks is an everyday thing.
            let serve = move || drop(serve(&stream));
            let _none_to_be_had = thread::Builder::new().stack_size(STACK).spawn(serve);
        }
    })?;
    pipe::drain()?;
    Ok(ExitCode::SUCCESS)
}

fn serve(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let (mut reader, mut writer) = (BufReader::new(stream), stream);
    let plain = Plain::new("echoes-http");
    let (mut texts, mut line, mut body, mut answer) = (HashMap::new(), String::new(), Vec::new(), Vec::new());
    loop {
        line.clear();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let is_post = line.starts_with("POST ");
        let length = rest_of_head(&mut reader, &mut line)?;
        body.resize(length.min(LONGEST), 0);
        reader.read_exact(&mut body)?;
        answer.clear();
        match said(&body, &plain, &mut texts).filter(|_| is_post) {
            Some(said) => {
                let head = format!(
                    "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
                    said.len()
                );
                answer.extend_from_slice(head.as_bytes());
                answer.extend_from_slice(&said);
            }
            None if is_post => {
                answer.extend_from_slice(b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n");
            }
            None => answer.extend_from_slice(b"HTTP/1.1 405 Method Not Allowed\r\nContent-Length: 0\r\n\r\n"),
        }
        writer.write_all(&answer)?;
    }
}

/// Reads what is left of the head, and returns how long the body is.
fn rest_of_head(reader: &mut impl BufRead, line: &mut String) -> io::Result<usize> {
    let mut length = 0;
    loop {
        line.clear();
        if reader.read_line(line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let Some((name, value)) = line.trim_end().split_once(':') else { return Ok(length) };
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse().map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
        }
    }
}

fn said(body: &[u8], plain: &Plain, texts: &mut HashMap<usize, Vec<u8>>) -> Option<Vec<u8>> {
    let Some((id, size)) = call(body) else {
        return ClientMessage::parse(body)
            .and_then(|message| plain.answer(&message))
            .map(|said| said.to_string().into_bytes());
    };
    let text = texts.entry(size).or_insert_with(|| rest_of_answer(size));
    let mut said = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":").into_bytes();
    said.extend_from_slice(text.trim_ascii_end());
    Some(said)
}
